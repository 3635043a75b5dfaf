// SPDX-License-Identifier: Apache-2.0
// Draws the figures of the page, again when the width of a plot changes, opens all texts for printing, and keeps the page of
// `wflow report --serve` up to date.

(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = new Map();
  const show = plot => {
    const width = plot.clientWidth;
    if (drawn.get(plot) === width) return;
    drawn.set(plot, width);
    drawFigure(plot, figures[plot.dataset.figure]);
  };
  const showAll = () => {
    const plots = Array.from(document.querySelectorAll(".plot"));
    for (const plot of drawn.keys()) if (!plot.isConnected) drawn.delete(plot);
    plots.forEach(show);
    document.documentElement.dataset.drawn = String(plots.length);
  };
  showAll();
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(showAll, 150);
  });
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(text => { text.open = true; }));

  // ---- the live page

  const main = document.querySelector("main"), nav = document.querySelector("nav"), subtitle = document.querySelector("header > p");
  const opened = section => new Set(Array.from(section.querySelectorAll("details[open] > summary"), summary => summary.textContent));

  // Replaces the sections that came with text; the others are unchanged. All text is escaped by wflow.
  function update(page) {
    const before = new Map(Array.from(main.children, section => [section.id, section]));
    document.title = document.querySelector("h1").textContent = page.title;
    nav.replaceChildren(...page.sections.map(section => {
      const link = document.createElement("a");
      link.href = "#" + section.id;
      link.textContent = section.title;
      return link;
    }));
    main.replaceChildren(...page.sections.map(section => {
      const old = before.get(section.id);
      if (section.html === undefined && old) return old;
      const holder = document.createElement("template");
      holder.innerHTML = section.html;
      const made = holder.content.firstElementChild;
      made.dataset.digest = section.digest;
      Object.assign(figures, section.figures);
      if (old) {
        const open = opened(old);
        made.querySelectorAll("details").forEach(text => { text.open = open.has(text.querySelector("summary").textContent); });
      }
      return made;
    }));
    showAll();
  }

  async function poll() {
    const seconds = 1000;
    try {
      const have = Array.from(main.children, section => section.dataset.digest).join(".");
      const answer = await fetch("sections?have=" + have, {cache: "no-store"});
      if (!answer.ok) throw new Error(String(answer.status));
      const page = await answer.json();
      if (page.sections.length) update(page);
      subtitle.textContent = page.subtitle;
      setTimeout(poll, page.next_s * seconds);
    } catch (error) {
      subtitle.textContent = "wflow report --serve does not answer: this page shows the last state that it sent.";
      setTimeout(poll, 5 * seconds);
    }
  }
  if (document.body.dataset.live !== undefined) poll();
})();
