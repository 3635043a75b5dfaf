# SPDX-License-Identifier: Apache-2.0
"""`wflow exec`: commands without a study, printed as they end and recorded as a campaign."""

import json
import signal
import subprocess
import unittest

from wflow_test import BIN, DATA, INTERRUPTED, OK, TASKS_FAILED, USAGE, CampaignTest, Terminal, wait_for

NASTY = ["a b", "it's", "$(touch broken)", "`touch broken`", "; touch broken", '"', "a,b", "# no comment", "*", "\\", "-n x", "|"]


class Exec(CampaignTest):
    def exec(self, *words, code=OK, stdin=""):
        done = subprocess.run([str(BIN / "wflow"), "exec", *[str(word) for word in words]], input=stdin, capture_output=True,
                              text=True, cwd=self.folder, env=self.environment, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def last(self):
        return max((self.folder / "wflow-exec").iterdir(), key=lambda path: path.stat().st_mtime)

    def test_every_argument_is_one_word_of_the_program(self):
        show = self.folder / "show"
        show.write_text('#!/bin/sh\nprintf "<%s>" "$@"; echo\n')
        show.chmod(0o755)
        out = self.exec("-k", "-j", 2, "--", "./show", "x {}", "$(date)", "{}", ":::", *NASTY).stdout
        self.assertEqual(out.splitlines(), [f"<x {word}><$(date)><{word}>" for word in NASTY])
        # In a line for the shell, too.
        out = self.exec("-k", "-j", 2, "./show {} | tr '<' '['", ":::", *NASTY).stdout
        self.assertEqual(out.splitlines(), [f"[{word}>" for word in NASTY])
        # And from standard input.
        out = self.exec("-k", "-j", 2, "--", "./show", stdin="\n".join(NASTY) + "\n\n").stdout
        self.assertEqual(out.splitlines(), [f"<{word}>" for word in NASTY])
        self.assertFalse((self.folder / "broken").exists())

    def test_lists_designs_and_tables(self):
        run = lambda *words, **more: self.exec("-k", "-j", 2, *words, **more).stdout.splitlines()
        self.assertEqual(run("--", "echo", "{2}-{1}", "{#}", ":::", "a", "b", ":::", "c", "d"), ["c-a 1", "d-a 2", "c-b 3", "d-b 4"])
        self.assertEqual(run("--", "echo", "n{#}", stdin="x\ny\n"), ["n1", "n2"])
        self.assertEqual(run("--", "echo", "{}", ":::", "a", "b", ":::+", "c", "d"), ["a c", "b d"])
        self.assertEqual(run("--dry-run", "cp {} {.}.o {/} {//} {/.}", ":::", "x.d/f.c", "g"),
                         ["cp x.d/f.c x.d/f.o f.c x.d f", "cp g g.o g . g"])
        self.assertEqual(run("--design", "sobol", "--count", 3, "--parameter", "x=0:1", "--parameter", "n=1:9:integer", "--", "echo", "{x}")[0],
                         "0.5")
        self.assertEqual(run("--design", "grid", "--parameter", "x=1.0,b c", "--", "echo"), ["1.0", "b c"])
        (self.folder / "t.csv").write_text("omega,sigma\n1,2\n3,x y\n")
        self.assertEqual(run("--samples", "t.csv", "--", "echo", "{omega}={2}", "\\{unknown}", "{#}"), ["1=2 {unknown} 1", "3=x y {unknown} 2"])
        for wrong in (("--", "echo", ":::", "a", ":::+", "b", "c"), ("--samples", "t.csv", "--", "echo", ":::", "a"), (":::", "a"),
                      ("--design", "sobol", "--parameter", "x=0:1", "--", "echo"), ("--", "echo", ":::+", "a"),
                      ("--design", "sobol", "--count", 2, "--parameter", "x=0", "--", "echo", "{x}", ":::", "a")):
            self.exec(*wrong, code=USAGE)
        self.assertIn("there are no arguments", self.exec("--", "echo").stderr)

    def test_files_of_arguments(self):
        """`wflow exec -- rm {} :::: list ::: a` has deleted list."""
        run = lambda *words, **more: self.exec("-k", "-j", 2, *words, **more).stdout.splitlines()
        (self.folder / "list").write_text("x\n\ny z\n")
        (self.folder / "other").write_text("1\n2")
        self.assertEqual(run("--", "echo", "{}", "::::", "list", ":::", "a", "b"), ["x a", "x b", "y z a", "y z b"])
        self.assertEqual(run("--", "echo", "{2}-{1}{#}", "::::", "list", "other"), ["1-x1", "2-x2", "1-y z3", "2-y z4"])
        self.assertEqual(run("--", "echo", "::::", "list", "::::+", "other"), ["x 1", "y z 2"])
        self.assertEqual(run("--", "echo", ":::", "a", "b", "::::+", "-", stdin="c\nd\n"), ["a c", "b d"])
        self.assertEqual(run("--", "echo", "<{}>", "::::", "list"), ["<x>", "<y z>"])
        for name in ("a", "x"):
            (self.folder / name).touch()
        self.exec("-j", 2, "--", "rm", "-f", "{}", "::::", "list", ":::", "a")
        self.assertTrue((self.folder / "list").exists())
        self.assertFalse((self.folder / "a").exists() or (self.folder / "x").exists())
        for wrong in (("--", "echo", "::::"), ("--", "echo", "::::", ":::", "a"), ("--", "echo", "::::+", "list"), ("--", "echo", ":::", "a", "::::+", "list"),
                      ("--", "echo", ":::", "a", "::::", "-", "-"), ("::::", "list")):
            self.exec(*wrong, code=USAGE)
        self.assertIn("no such file: none", self.exec("--", "echo", "::::", "none", code=DATA).stderr)

    def test_placeholders_that_stand_for_nothing(self):
        (self.folder / "t.csv").write_text("omega,sigma\n1,2\n")
        for words, said in ((("--samples", "t.csv", "--", "touch", "ran", "{omgea}"), "did you mean 'omega'"),
                            (("--", "touch", "ran", "{3}", ":::", "a", ":::", "b"), "{3} stands for nothing: there are {} {#} {%} {1} {2}"),
                            (("touch ran {name}", ":::", "a"), "for the text itself write \\{name}"),
                            (("--samples", "t.csv", "--", "touch", "ran", "{.}"), "{.} stands for nothing")):
            self.assertIn(said, self.exec(*words, code=USAGE).stderr)
        self.assertFalse((self.folder / "ran").exists())
        out = self.exec("A=1; printf '%s\\n' {} ${A} \\{print} {a,b} '{ x }'", ":::", "v").stdout
        self.assertEqual(out.splitlines(), ["v", "1", "{print}", "a", "b", "{ x }"])

    def test_lines_of_commands_in_this_directory(self):
        (self.folder / "here").write_text("found")
        done = self.exec("-j", 2, stdin="cat here; echo; A=1; echo $A > a\n\necho 2 >&2; exit 3\ntrue\n", code=TASKS_FAILED)
        self.assertEqual(done.stdout, "found\n")
        self.assertTrue(done.stderr.startswith("2\n"), done.stderr)
        self.assertIn("2 of 3 commands done, 1 failed", done.stderr)
        self.assertEqual((self.folder / "a").read_text(), "1\n")
        campaign = self.last()
        rows = json.loads(self.wflow("tasks", campaign, "--state", "failed", "--json", code=OK).out)
        self.assertIn("exec/1", json.dumps(rows))
        self.assertIn("found", self.wflow("logs", campaign, "exec/0").out)

    def test_retries_a_time_limit_and_retry(self):
        self.exec("-q", "--retries", 1, "-j", 2, "echo x >> n{1}; [ $(wc -l < n{1}) -ge {2} ]", ":::", 1, 2, 3, ":::+", 1, 2, 3, code=TASKS_FAILED)
        self.assertEqual([len((self.folder / f"n{i}").read_text().split()) for i in (1, 2, 3)], [1, 2, 2])
        self.wflow("retry", self.last(), code=OK)
        self.assertEqual(len((self.folder / "n3").read_text().split()), 3)
        self.exec("--timeout", "0.2s", "-j", 1, "--", "sleep", ":::", 600, code=TASKS_FAILED)

    def test_interrupted_and_resumed(self):
        gate = self.folder / "gate"
        process = subprocess.Popen([str(BIN / "wflow"), "exec", "-j", "2", "echo {} >> ran; until [ -e gate ]; do sleep 0.1; done", ":::",
                                    *map(str, range(6))],
                                   cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: (self.folder / "ran").exists() and len((self.folder / "ran").read_text().split()) == 2, "two commands")
        process.send_signal(signal.SIGINT)
        wait_for(lambda: "draining" in self.wflow("status", self.last()).out, "the drain")
        gate.touch()
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertIn("go on with: wflow resume wflow-exec/", err)
        self.wflow("resume", self.last(), code=OK)
        self.assertEqual(sorted((self.folder / "ran").read_text().split()), [str(i) for i in range(6)])

    def start_exec(self, *words):
        process = subprocess.Popen([str(BIN / "wflow"), "exec", *map(str, words)], cwd=self.folder, env=self.environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def ran(self):
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def test_commands_start_while_lines_come(self):
        """An endless stream: each line runs before the next one is written."""
        process = self.start_exec("-k", "-j", 2, "--tag", "--joblog", "jobs", "--on-finished", f"echo ended >> {self.folder}/hook", "echo {} >> ran; echo n{#}")
        for number in range(4):
            process.stdin.write(f"line{number}\n")
            process.stdin.flush()
            wait_for(lambda: self.ran() == [f"line{i}" for i in range(number + 1)], f"the command of line {number}")
        self.assertFalse((self.folder / "hook").exists())
        out, err = process.communicate("line4\nline5\n", timeout=120)
        self.assertEqual((process.returncode, sorted(self.ran())), (OK, [f"line{i}" for i in range(6)]), err)
        self.assertEqual(out.splitlines(), [f"line{i}\tn{i + 1}" for i in range(6)])
        self.assertIn("6 of 6 commands done", err)
        rows = (self.folder / "jobs").read_text().splitlines()[1:]
        self.assertEqual([row.split("\t")[0] for row in rows], [str(i) for i in range(1, 7)])
        wait_for((self.folder / "hook").exists, "the hook")
        self.assertEqual((self.folder / "hook").read_text(), "ended\n")
        campaign = self.last()
        self.assertEqual(len(list((campaign / ".wflow/studies").iterdir())), 2)  # the first version and the last
        self.assertIn("6/6", self.wflow("status", campaign).out.replace(" ", "").replace("of", "/"))
        self.wflow("doctor", campaign)

    def test_a_stream_is_interrupted(self):
        process = self.start_exec("-j", 1, "echo {} >> ran")
        process.stdin.write("one\n")
        process.stdin.flush()
        wait_for(lambda: self.ran() == ["one"] and "coordinator" not in self.at_rest(), "the end of the first batch")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=120), INTERRUPTED)  # although the input has not ended
        _, err = process.communicate()
        self.assertIn("1 of 1 command done", err)
        self.assertIn("not all of the input was read", err)
        process = self.start_exec("-j", 1, "--time-limit", "10s", "echo {} >> ran")
        process.stdin.write("two\n")
        process.stdin.flush()
        self.assertEqual(process.wait(timeout=120), INTERRUPTED)
        self.assertEqual(self.ran(), ["one", "two"])
        process.communicate()

    def at_rest(self):
        """The parts of a status that say whether a process coordinates the campaign."""
        status = json.loads(self.wflow("status", self.last(), "--json").out)
        return {"coordinator"} if status["state"] != "finished" else set()

    def test_a_stream_that_fails_and_halts(self):
        process = self.start_exec("-j", 1, "--halt", "soon,fail=1", "echo {} >> ran; [ {} != bad ]")
        process.stdin.write("good\n")
        process.stdin.flush()
        wait_for(lambda: self.ran() == ["good"], "the first command")
        process.stdin.write("bad\n")
        process.stdin.flush()
        self.assertEqual(process.wait(timeout=120), TASKS_FAILED)  # although the input has not ended
        self.assertEqual(self.ran(), ["good", "bad"])
        _, err = process.communicate()
        self.assertIn("then --halt ended it", err)
        self.assertIn("not all of the input was read", err)

    def test_halt(self):
        command = "echo {} >> ran; [ {} != 3 ]"
        done = self.exec("-j", 1, "--halt", "soon,fail=1", command, ":::", *range(1, 3001), code=TASKS_FAILED)
        self.assertIn("3", self.ran())
        self.assertLess(len(self.ran()), 2000)  # a worker has some commands ahead
        self.assertIn("1 failed, then --halt ended it", done.stderr)
        self.wflow("resume", self.last(), "-q", code=TASKS_FAILED)
        self.assertEqual(sorted(map(int, self.ran())), list(range(1, 3001)))
        # now: the command that would wait for ever is ended.
        done = self.exec("-j", 2, "--halt", "now,fail=1", "[ {} = 1 ] && exec sleep 600; exit 1", ":::", 1, 2, code=TASKS_FAILED)
        self.assertIn("then --halt ended it", done.stderr)
        self.exec("-j", 2, "--halt", "now,success=1", "[ {} = 1 ] && exec sleep 600; true", ":::", 1, 2)
        for wrong in ("soon", "later,fail=1", "soon,fail=0"):
            self.assertIn("as in --halt soon,fail=1", self.exec("--halt", wrong, "--", "true", ":::", 1, code=USAGE).stderr)

    def test_job_log_and_results(self):
        done = self.exec("-k", "-j", 2, "--joblog", "jobs", "--results", "out", "echo {1}-{2}; echo e >&2; [ {1} != x/y ]", ":::", "a", "x/y", ":::", 1, 2,
                         code=TASKS_FAILED)
        self.assertEqual(done.stdout, "a-1\na-2\nx/y-1\nx/y-2\n")
        rows = [row.split("\t") for row in (self.folder / "jobs").read_text().splitlines()]
        self.assertEqual(rows[0], ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"])
        self.assertEqual([(row[0], row[5], row[6], row[7]) for row in rows[1:]],
                         [("1", "4", "0", "0"), ("2", "4", "0", "0"), ("3", "6", "1", "0"), ("4", "6", "1", "0")])
        self.assertIn("echo a-1", rows[1][8])
        self.assertGreater(float(rows[1][2]), 1.7e9)
        files = sorted(str(path.relative_to(self.folder / "out")) for path in (self.folder / "out").rglob("*") if path.is_file())
        self.assertEqual(files, sorted(f"1/{a}/2/{b}/{name}" for a in ("a", "x\\_y") for b in (1, 2) for name in ("seq", "stderr", "stdout")))
        self.assertEqual((self.folder / "out/1/a/2/2/stdout").read_text(), "a-2\n")
        self.assertEqual((self.folder / "out/1/a/2/2/seq").read_text(), "2")
        self.assertEqual((self.folder / "out/1/a/2/2/stderr").read_text(), "e\n")
        self.exec("-q", "-j", 1, "--joblog", "jobs", "kill -9 $$ # {}", ":::", 1, code=TASKS_FAILED)
        self.assertEqual((self.folder / "jobs").read_text().splitlines()[1].split("\t")[6:8], ["0", "9"])

    def test_tags_slots_and_progress(self):
        out = self.exec("-k", "-j", 2, "--tagstring", "{#}:{/}", "printf 'a\\nb\\n' # {}", ":::", "d/x", "d/y").stdout
        self.assertEqual(out, "1:x\ta\n1:x\tb\n2:y\ta\n2:y\tb\n")
        out = self.exec("-k", "-j", 2, "--tag", "--", "echo", "{1}", ":::", "a", ":::", "b").stdout
        self.assertEqual(out, "a b\ta\n")
        slots = self.exec("-j", 2, "--", "echo", "{%}", "{}", ":::", *range(20)).stdout
        self.assertLessEqual({line.split()[0] for line in slots.splitlines()}, {"1", "2"})
        err = self.exec("-j", 2, "--bar", "--", "true", ":::", *range(5)).stderr
        self.assertRegex(err, r"\S 100 %  5 of 5 ended\n")
        terminal = Terminal(self, ["exec", "-j", "2", "--eta", "--", "echo", "out", "{}", ":::", "1", "2"], columns=100)
        self.assertEqual(terminal.finish(), OK)
        self.assertRegex(terminal.text, r"\r2 of 2 ended\x1b\[K")

    def test_is_not_the_newest_campaign_of_a_study(self):
        study = self.study("description: {name: real, description: d}\nenv: {variables: {OUTPUT_PATH: .}}\nstudy:\n  - {name: a, run: {cmd: echo a}}\n")
        self.exec("--", "echo", "{}", ":::", 1)
        self.assertIn("exec", self.wflow("status").out)
        self.wflow("run", study, "-q")
        self.exec("--", "echo", "{}", ":::", 1)
        self.assertIn("real", self.wflow("status").out)
        self.assertEqual([row["task"] for row in json.loads(self.wflow("tasks", "--json").out)], ["a"])
        self.assertIn("exec ", self.wflow("tasks", self.last()).out)

    def test_what_a_kill_leaves_is_removed_by_the_next(self):
        process = subprocess.Popen([str(BIN / "wflow"), "exec", "--", "echo"], cwd=self.folder, env=self.environment, stdin=subprocess.PIPE)
        wait_for(lambda: list(self.folder.glob("wflow-exec/.new-*/arguments.lines")), "the table")
        process.kill()
        process.wait()
        process.stdin.close()
        self.assertEqual(len(list(self.folder.glob("wflow-exec/.new-*"))), 1)
        self.exec("--", "echo", ":::", "a")
        self.assertEqual(list(self.folder.glob("wflow-exec/.new-*")), [])

    def test_a_reader_that_goes_ends_it(self):
        command = f"seq 100000 | {BIN}/wflow exec -k -j 2 -- echo {{}} | head -2; exit ${{PIPESTATUS[1]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=self.folder, env=self.environment, timeout=240)
        self.assertEqual((done.stdout, done.returncode), ("1\n2\n", INTERRUPTED))


if __name__ == "__main__":
    unittest.main()
