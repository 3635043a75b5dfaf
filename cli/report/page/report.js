// SPDX-License-Identifier: Apache-2.0
// Draws the figures of the page, again when the width of a plot changes, and opens all texts for printing.

(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = Array.from(document.querySelectorAll(".plot"));
  const drawn = new Map();
  const show = plot => {
    const width = plot.clientWidth;
    if (drawn.get(plot) === width) return;
    drawn.set(plot, width);
    drawFigure(plot, figures[Number(plot.dataset.figure)]);
  };
  plots.forEach(show);
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => plots.forEach(show), 150);
  });
  window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(text => { text.open = true; }));
  document.documentElement.dataset.drawn = String(plots.length);
})();
