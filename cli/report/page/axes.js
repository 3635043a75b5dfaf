// SPDX-License-Identifier: Apache-2.0
// Scales, texts, marks and legends of the report's plots. The extents and ticks of the axes are in the figures: cli/plot computes them.
"use strict";

function numberLabel(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e") : String(+value.toPrecision(6));
}

const units = {elapsed: " s", bytes: " B"};

// A value under the pointer.
function valueLabel(axis, value) {
  return numberLabel(value) + (units[axis.scale] || "");
}

// The longest list of ticks, [value, label] each, that leaves this many pixels between two of them.
function ticksOf(axis, length, spacing) {
  const fitting = axis.ticks.filter(list => (list.length - 1) * spacing <= length);
  return fitting.length ? fitting[fitting.length - 1] : axis.ticks[0];
}

function scaleOf(axis, range) {
  return (axis.scale === "logarithmic" ? d3.scaleLog() : d3.scaleLinear()).domain(axis.extent).range(range);
}

function axisTitle(axis) {
  return axis.unit ? `${axis.name} [${axis.unit}]` : axis.name;
}

const measure = document.createElement("canvas").getContext("2d");

function textWidth(text) {
  measure.font = "11.5px system-ui, sans-serif";
  return measure.measureText(text).width;
}

function cut(text, width) {
  if (textWidth(text) <= width) return text;
  let most = text.length - 1;
  while (most > 1 && textWidth(text.slice(0, most) + "…") > width) --most;
  return text.slice(0, most) + "…";
}

const dashes = ["", "7 3", "2 2", "9 3 2 3", "4 2", "12 4"];
const symbols = [d3.symbolCircle, d3.symbolCross, d3.symbolTriangle, d3.symbolSquare, d3.symbolStar, d3.symbolDiamond];

function drawMark(parent, series, x, y, area) {
  const turn = series % symbols.length === 1 ? " rotate(45)" : "";
  return parent.append("path").attr("class", `fill s${series % 8}`).attr("transform", `translate(${x.toFixed(1)},${y.toFixed(1)})${turn}`)
    .attr("d", d3.symbol().type(symbols[series % symbols.length]).size(area)());
}

// Draws lines in a different direction for each series, so that filled areas differ without colours.
function drawHatch(parent, series, x, y, width, height) {
  const direction = series % 4;
  if (direction === 0 || width < 2 || height < 3) return;
  const lines = [];
  for (let at = -height; at < width; at += 6) {
    const clipped = (x1, y1, x2, y2) => {
      const from = Math.max(0, -x1 / (x2 - x1 || 1)), to = Math.min(1, (width - x1) / (x2 - x1 || 1));
      if (x1 === x2) { if (x1 >= 0 && x1 <= width) lines.push([x1, y1, x2, y2]); return; }
      if (from < to) lines.push([x1 + from * (x2 - x1), y1 + from * (y2 - y1), x1 + to * (x2 - x1), y1 + to * (y2 - y1)]);
    };
    if (direction === 1) clipped(at, height, at + height, 0);
    if (direction === 2) clipped(at, 0, at + height, height);
    if (direction === 3) clipped(at, 0, at, height);
  }
  const path = lines.map(l => `M${(x + l[0]).toFixed(1)},${(y + l[1]).toFixed(1)}L${(x + l[2]).toFixed(1)},${(y + l[3]).toFixed(1)}`).join("");
  parent.append("path").attr("class", "hatch").attr("d", path);
}

// Draws the legend and returns its height.
function drawLegend(svg, figure, width) {
  if (!figure.series || figure.series.length < 2) return 0;
  const legend = svg.append("g").attr("class", "legend");
  let x = 4, y = 9;
  figure.series.forEach((series, i) => {
    const name = cut(series.name, width / 2);
    const wide = textWidth(name) + 42;
    if (x + wide > width && x > 4) { x = 4; y += 18; }
    const entry = legend.append("g");
    if (figure.kind === "lines") {
      entry.append("line").attr("class", `stroke s${i % 8}`).attr("x1", x).attr("x2", x + 22).attr("y1", y).attr("y2", y)
        .attr("stroke-dasharray", dashes[i % dashes.length]);
      if (series.marks) drawMark(entry, i, x + 11, y, 36);
    } else if (figure.kind === "scatter") {
      drawMark(entry, i, x + 11, y, 46);
    } else {
      entry.append("rect").attr("class", `fill s${i % 8}`).attr("x", x).attr("y", y - 5).attr("width", 22).attr("height", 10);
      drawHatch(entry, i, x, y - 5, 22, 10);
    }
    const text = entry.append("text").attr("x", x + 27).attr("y", y + 4).text(name);
    if (name !== series.name) text.append("title").text(series.name);
    x += wide;
  });
  return y + 12;
}
