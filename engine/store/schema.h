// SPDX-License-Identifier: Apache-2.0
// The campaign database's tables. docs/database.md describes the views, which are the stable public
// interface.
#pragma once

namespace wflow::engine::store {

// Raised with every change of the tables; another one is refused.
inline constexpr int kSchemaVersion = 6;

inline constexpr const char* kSchema = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE arrays (
  id INTEGER PRIMARY KEY, step TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, elements INTEGER NOT NULL,
  timed INTEGER NOT NULL DEFAULT 0, duration_sum REAL NOT NULL DEFAULT 0, duration_square_sum REAL NOT NULL DEFAULT 0,
  -- How many have ended so: what the runs below add up to, so that a status reads no run.
  done INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, hard_failed INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
  source INTEGER);  -- of a conversion: the array whose samples it reads
CREATE INDEX arrays_by_source ON arrays (source) WHERE source IS NOT NULL;
-- Elements first..last of an array have ended in this state; neighbours of equal state are one row.
CREATE TABLE runs (
  array INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, state INTEGER NOT NULL,
  PRIMARY KEY (array, first)) WITHOUT ROWID;
-- Elements first..last were opened again (wflow retry): successes under leases below this one do not count.
CREATE TABLE floors (
  array INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, lease INTEGER NOT NULL,
  PRIMARY KEY (array, first)) WITHOUT ROWID;
-- Every execution that did not succeed.
CREATE TABLE failures (
  id INTEGER PRIMARY KEY, array INTEGER NOT NULL, element INTEGER NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL,
  exit_code INTEGER NOT NULL, started REAL, duration REAL, worker TEXT, detail TEXT);
CREATE INDEX failures_by_element ON failures (array, element);
-- Elements that ran without success and will run again.
CREATE TABLE attempts (
  array INTEGER NOT NULL, element INTEGER NOT NULL, next_attempt INTEGER NOT NULL,
  -- Of its executions; the others asked for another one. neutral: ended with their allocation; launches: not started
  -- by their launcher; memory: killed for memory and given more, from now on memory_bytes (0: as the step asks).
  failures INTEGER NOT NULL, crashes INTEGER NOT NULL, neutral INTEGER NOT NULL, launches INTEGER NOT NULL,
  memory INTEGER NOT NULL, memory_bytes INTEGER NOT NULL, restart INTEGER NOT NULL,
  PRIMARY KEY (array, element)) WITHOUT ROWID;
-- A worker is two processes: host, boot, process table (pid namespace), pid and start time say which.
CREATE TABLE workers (
  id TEXT PRIMARY KEY, worker_group TEXT NOT NULL, cores INTEGER NOT NULL, gpus INTEGER NOT NULL,
  host TEXT NOT NULL, boot TEXT NOT NULL, pid_namespace TEXT NOT NULL, pid INTEGER NOT NULL, started_ticks INTEGER NOT NULL,
  agent_host TEXT NOT NULL, agent_boot TEXT NOT NULL, agent_pid_namespace TEXT NOT NULL, agent_pid INTEGER NOT NULL,
  agent_started_ticks INTEGER NOT NULL,
  lost_s REAL NOT NULL,  -- so long after its last answered heartbeat it ends its tasks by itself
  joined REAL NOT NULL, ended REAL, reason TEXT) WITHOUT ROWID;
-- What tasks said on their event channel, but for progress (the last one counts) and metrics.
CREATE TABLE events (
  id INTEGER PRIMARY KEY, time REAL NOT NULL, array INTEGER NOT NULL, element INTEGER NOT NULL, attempt INTEGER NOT NULL,
  type TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE progress (
  array INTEGER NOT NULL, element INTEGER NOT NULL, time REAL NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL,
  unit TEXT NOT NULL, PRIMARY KEY (array, element)) WITHOUT ROWID;
CREATE TABLE metrics (
  array INTEGER NOT NULL, element INTEGER NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
  value REAL,  -- NULL: see not_finite
  not_finite TEXT,  -- NaN, Infinity, -Infinity
  time REAL NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY (array, element, name, step)) WITHOUT ROWID;
-- Samples of the array's source that the conversion could not use: told by its element in this attempt.
CREATE TABLE missing (
  array INTEGER NOT NULL, sample INTEGER NOT NULL, element INTEGER NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (array, sample)) WITHOUT ROWID;
CREATE INDEX missing_by_element ON missing (array, element);
-- What the executions of a step used, as distributions (engine/usage/step_usage.h).
CREATE TABLE usage (step TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
-- What each execution used: records of elements first..last of an array, in the order in which they ended.
CREATE TABLE task_usage (
  array INTEGER NOT NULL, block INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, records INTEGER NOT NULL,
  body BLOB NOT NULL, PRIMARY KEY (array, block));
CREATE INDEX task_usage_by_element ON task_usage (array, last, first);
CREATE TABLE usage_workers (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
-- When each coordinator worked: from its first commit to its last one.
CREATE TABLE sessions (epoch INTEGER PRIMARY KEY, began REAL NOT NULL, last REAL NOT NULL);
-- The campaign's own story: coordinators that came and went, workers, stops.
CREATE TABLE history (id INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
-- Campaigns that come after this one. source: who asked for it, so that asking is recorded once.
CREATE TABLE followups (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, iteration INTEGER NOT NULL, spec TEXT NOT NULL, options TEXT NOT NULL,
  directory TEXT NOT NULL, state TEXT NOT NULL, exit_code INTEGER NOT NULL, source TEXT NOT NULL UNIQUE,
  created REAL NOT NULL, started REAL, ended REAL);
-- Batch allocations, from the intention to submit one. The token is its name at the scheduler.
CREATE TABLE allocations (
  token TEXT PRIMARY KEY, id TEXT NOT NULL, pool TEXT NOT NULL, scheduler TEXT NOT NULL, nodes INTEGER NOT NULL,
  walltime REAL NOT NULL, state TEXT NOT NULL, how TEXT NOT NULL, by_hand INTEGER NOT NULL, restarts INTEGER NOT NULL,
  created REAL NOT NULL, started REAL NOT NULL, ends REAL NOT NULL, ended REAL NOT NULL,  -- 0: not yet, or not known
  reason TEXT NOT NULL, never_clears TEXT NOT NULL,
  node_names TEXT NOT NULL  -- one a line
  ) WITHOUT ROWID;
-- Checksums of the files that a step declares (sources:), each time that they had changed when a coordinator began.
CREATE TABLE sources (
  id INTEGER PRIMARY KEY, step TEXT NOT NULL, time REAL NOT NULL, study INTEGER NOT NULL,
  files TEXT NOT NULL  -- JSON: path -> checksum, bytes, time of change
  );
-- Elements first..last that are done were made with these sources, and not with the first ones of their step that this
-- version of the study has.
CREATE TABLE made (
  array INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, sources INTEGER NOT NULL,
  PRIMARY KEY (array, first)) WITHOUT ROWID;
-- Task arrays that a later version of the study has no more. Their failures, events, metrics and records stay, under
-- the array -id: a query of the study as it is now asks for array >= 0, or joins arrays.
CREATE TABLE removed_arrays (
  id INTEGER PRIMARY KEY, step TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, elements INTEGER NOT NULL,
  done INTEGER NOT NULL, failed INTEGER NOT NULL,
  study INTEGER NOT NULL  -- the first version that has it no more
  );
CREATE TABLE states (state INTEGER PRIMARY KEY, name TEXT NOT NULL);

CREATE VIEW v_steps AS
  SELECT step, kind, count(*) AS arrays, sum(elements) AS elements FROM arrays GROUP BY step ORDER BY min(id);
CREATE VIEW v_sources AS SELECT step, time, study, files FROM sources ORDER BY id;
CREATE VIEW v_removed AS
  SELECT step, name AS array, kind, elements, done, failed, study FROM removed_arrays ORDER BY id;
CREATE VIEW v_removed_failures AS
  SELECT d.study, d.step, d.name AS array, f.element AS sample, f.attempt, f.reason, f.exit_code, f.started, f.duration,
         f.worker, f.detail
  FROM failures f JOIN removed_arrays d ON d.id = -f.array ORDER BY f.id;
CREATE VIEW v_removed_metrics AS
  SELECT d.study, d.step, d.name AS array, m.element AS sample, m.name, m.epoch, m.step AS train_step, m.value,
         m.not_finite, m.time
  FROM metrics m JOIN removed_arrays d ON d.id = -m.array;
CREATE VIEW v_removed_events AS
  SELECT d.study, e.time, d.step, d.name AS array, e.element AS sample, e.attempt, e.type, e.body
  FROM events e JOIN removed_arrays d ON d.id = -e.array ORDER BY e.id;
CREATE VIEW v_runs AS
  SELECT a.step, a.name AS array, r.first, r.last, r.last - r.first + 1 AS count, s.name AS state
  FROM runs r JOIN arrays a ON a.id = r.array JOIN states s ON s.state = r.state;
-- final is not stored: `wflow retry` of a million tasks then changes their runs alone.
CREATE VIEW v_failures AS
  SELECT a.step, a.name AS array, f.element AS sample, f.attempt, f.reason, f.exit_code, f.started, f.duration, f.worker,
         f.id = (SELECT max(g.id) FROM failures g WHERE g.array = f.array AND g.element = f.element)
         AND EXISTS (SELECT 1 FROM runs r WHERE r.array = f.array AND r.last >= f.element AND r.state IN (5, 6)
                     AND r.first = (SELECT max(q.first) FROM runs q WHERE q.array = f.array AND q.first <= f.element))
         AS final, f.detail
  FROM failures f JOIN arrays a ON a.id = f.array;
CREATE VIEW v_metrics AS
  SELECT a.step, a.name AS array, m.element AS sample, m.name, m.epoch, m.step AS train_step, m.value, m.not_finite, m.time
  FROM metrics m JOIN arrays a ON a.id = m.array;
CREATE VIEW v_progress AS
  SELECT step, sum(elements) AS elements, sum(elements - done - failed - hard_failed - skipped - cancelled) AS open,
         sum(done) AS done, sum(failed + hard_failed) AS failed, sum(skipped) AS skipped, sum(cancelled) AS cancelled,
         sum(duration_sum) / max(sum(timed), 1) AS mean_duration
  FROM arrays GROUP BY step ORDER BY min(id);
-- Done tasks whose output a conversion could not use.
CREATE VIEW v_missing AS
  SELECT s.step, s.name AS array, m.sample, a.step AS data_set, m.reason, a.source AS source
  FROM missing m JOIN arrays a ON a.id = m.array JOIN arrays s ON s.id = a.source
  JOIN runs r ON r.array = a.source AND r.state = 4 AND r.last >= m.sample
       AND r.first = (SELECT max(q.first) FROM runs q WHERE q.array = a.source AND q.first <= m.sample);
CREATE VIEW v_tasks AS
  SELECT a.step, a.name AS array, f.element AS sample,
         COALESCE((SELECT s.name FROM runs r JOIN states s ON s.state = r.state
                   WHERE r.array = f.array AND r.last >= f.element AND r.first = (
                     SELECT max(q.first) FROM runs q WHERE q.array = f.array AND q.first <= f.element)),
                  'pending') AS state,
         c.executions AS failed_executions, f.reason, f.exit_code, f.started, f.duration, f.worker, f.detail
  FROM failures f
  JOIN (SELECT max(id) AS id, count(*) AS executions FROM failures GROUP BY array, element) c ON c.id = f.id
  JOIN arrays a ON a.id = f.array
  WHERE NOT EXISTS (SELECT 1 FROM v_missing m WHERE m.source = f.array AND m.sample = f.element)
  UNION ALL
  SELECT m.step, m.array, m.sample, 'missing', (SELECT count(*) FROM failures f WHERE f.array = m.source AND
         f.element = m.sample), 'missing', 0, NULL, NULL, NULL, group_concat(m.data_set || ': ' || m.reason, char(10))
  FROM v_missing m GROUP BY m.source, m.sample;
CREATE VIEW v_retries AS
  SELECT a.step, a.name AS array, t.element AS sample, t.next_attempt, t.failures, t.crashes, t.neutral, t.launches,
         t.memory, t.memory_bytes, t.restart
  FROM attempts t JOIN arrays a ON a.id = t.array;
CREATE VIEW v_workers AS
  SELECT w.id AS worker, w.host, w.pid, w.worker_group, w.cores, w.gpus, w.joined, w.ended, w.reason FROM workers w;
CREATE VIEW v_allocations AS
  SELECT token, id, pool, scheduler, nodes, walltime, state, how, created, nullif(started, 0) AS started,
         nullif(ends, 0) AS ends, nullif(ended, 0) AS ended, restarts, reason, node_names,
         CASE WHEN started > 0 AND ended > started THEN nodes * (ended - started) / 3600.0 END AS node_hours
  FROM allocations ORDER BY created, token;
CREATE VIEW v_history AS SELECT time, kind, text FROM history ORDER BY id;
CREATE VIEW v_events AS
  SELECT e.time, a.step, a.name AS array, e.element AS sample, e.attempt, e.type, e.body
  FROM events e JOIN arrays a ON a.id = e.array;
CREATE VIEW v_task_progress AS
  SELECT a.step, a.name AS array, p.element AS sample, p.time, p.done, p.total, p.unit
  FROM progress p JOIN arrays a ON a.id = p.array;
CREATE VIEW v_followups AS
  SELECT id, kind, iteration, spec, options, directory, state, exit_code, created, started, ended
  FROM followups ORDER BY id;
)sql";

}  // namespace wflow::engine::store
