// SPDX-License-Identifier: Apache-2.0
// Scales, ticks and legends of the report's plots, with the same rules for labels as cli/plot/ticks.cc,
// which a browser can't run.
"use strict";

const elapsedSteps = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 43200, 86400];

function elapsedLabel(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 0) return "-" + elapsedLabel(-seconds);
  if (seconds < 1) return `${+(seconds * 1000).toPrecision(3)} ms`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const whole = seconds < 10 ? +seconds.toPrecision(3) : Math.round(seconds);
  for (let i = 0; i + 1 < units.length; ++i) {
    const [name, size] = units[i];
    if (whole < size) continue;
    const first = Math.floor(whole / size);
    const second = Math.floor((whole - first * size) / units[i + 1][1]);
    return `${first} ${name}` + (second ? ` ${second} ${units[i + 1][0]}` : "");
  }
  return `${whole} s`;
}

function bytesLabel(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return `${+bytes.toPrecision(4)} ${units[unit]}`;
}

function numberLabel(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e") : String(+value.toPrecision(6));
}

function labelOf(scale) {
  return scale === "elapsed" ? elapsedLabel : scale === "bytes" ? bytesLabel : numberLabel;
}

function ticksOf(axis, scale, wanted) {
  const [low, high] = scale.domain();
  if (axis.scale === "logarithmic") {
    const ticks = scale.ticks(wanted);
    const powers = ticks.filter(t => Math.abs(Math.log10(t) - Math.round(Math.log10(t))) < 1e-9);
    if (powers.length > 2) return powers.filter((_, i) => i % Math.ceil(powers.length / (wanted + 1)) === 0);
    const few = ticks.filter(t => [1, 2, 5].includes(Math.round(t / Math.pow(10, Math.floor(Math.log10(t) + 1e-9)))));
    return few.length > 1 ? few : ticks.filter((_, i) => i % Math.ceil(ticks.length / wanted) === 0);
  }
  if (axis.scale === "elapsed") {
    const rough = (high - low) / wanted;
    const step = elapsedSteps.find(s => s >= rough * 0.99) || 86400 * d3.tickStep(0, rough / 86400, 1);
    return d3.range(Math.ceil(low / step - 1e-9) * step, high + step * 1e-9, step);
  }
  return scale.ticks(wanted);
}

// The extent of an axis: the data, widened a little so that no mark lies on the frame.
function extentOf(axis, values, options) {
  const logarithmic = axis.scale === "logarithmic";
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !isFinite(value) || (logarithmic && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (axis.low !== undefined) low = axis.low;
  if (axis.high !== undefined) high = axis.high;
  if (!(low <= high)) return logarithmic ? [1, 10] : [0, 1];
  if (logarithmic) {
    if (low === high) return [low / 2, high * 2];
    const room = options.exact ? 1 : Math.pow(high / low, 0.04);
    return [axis.low === undefined ? low / room : low, axis.high === undefined ? high * room : high];
  }
  if (options.zero && axis.low === undefined) low = Math.min(low, 0);
  if (low === high) {
    const around = high === 0 ? 1 : Math.abs(high) / 2;
    return [options.zero ? low : low - around, high + around];
  }
  const room = options.exact ? 0 : (high - low) * 0.04;
  return [axis.low !== undefined || (options.zero && low === 0) ? low : low - room, axis.high !== undefined ? high : high + room];
}

function scaleOf(axis, extent, range) {
  return (axis.scale === "logarithmic" ? d3.scaleLog() : d3.scaleLinear()).domain(extent).range(range);
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
