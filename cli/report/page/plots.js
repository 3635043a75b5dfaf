// SPDX-License-Identifier: Apache-2.0
// Draws each kind of figure (docs/report.md, "Figures as JSON") as SVG; pictures on canvases.

const hasRows = figure => figure.kind === "bars" || figure.kind === "timeline";

// Draws axes and legend, and adds an area for the data with scales.
function frameOf(container, figure) {
  const width = Math.max(280, container.clientWidth || 480);
  const rows = hasRows(figure) ? figure.categories.length : 0;
  const inner = rows ? Math.min(Math.max(rows * (figure.kind === "bars" ? 26 : 18), 60), 640) : Math.min(300, Math.max(200, width * 0.5));
  const svg = d3.select(container).append("svg").attr("role", "img").attr("aria-label", figure.title);
  const top = drawLegend(svg, figure, width) + 6;
  const height = top + inner + 44;
  svg.attr("viewBox", `0 0 ${width} ${height}`);
  const y = rows ? null : scaleOf(figure.y, [top + inner, top]);
  const yTicks = rows ? [] : ticksOf(figure.y, inner, 45);
  const names = rows ? figure.categories : yTicks.map(tick => tick[1]);
  const left = Math.min(d3.max(names, textWidth) || 0, width * 0.34) + (rows ? 10 : 28);
  const right = width - 12;
  const x = scaleOf(figure.x, [left, right]);
  const grid = svg.append("g").attr("class", "grid");
  const axis = svg.append("g").attr("class", "axis");
  for (const [value, label] of ticksOf(figure.x, right - left, 95)) {
    grid.append("line").attr("x1", x(value)).attr("x2", x(value)).attr("y1", top).attr("y2", top + inner);
    axis.append("text").attr("x", Math.min(x(value), width - textWidth(label) / 2)).attr("y", top + inner + 16).attr("text-anchor", "middle").text(label);
  }
  for (const [value, label] of yTicks) {
    grid.append("line").attr("x1", left).attr("x2", right).attr("y1", y(value)).attr("y2", y(value));
    axis.append("text").attr("x", left - 6).attr("y", y(value) + 4).attr("text-anchor", "end").text(label);
  }
  if (rows) {
    const every = Math.ceil(14 * rows / inner);
    figure.categories.forEach((name, i) => {
      if (i % every) return;
      axis.append("text").attr("x", left - 6).attr("y", top + inner * (i + 0.5) / rows + 4).attr("text-anchor", "end")
        .text(cut(name, left - 8)).append("title").text(name);
    });
  }
  axis.append("path").attr("d", `M${left},${top}V${top + inner}H${right}`);
  axis.append("text").attr("x", (left + right) / 2).attr("y", top + inner + 35).attr("text-anchor", "middle").text(axisTitle(figure.x));
  if (!rows) axis.append("text").attr("transform", `translate(12,${top + inner / 2}) rotate(-90)`).attr("text-anchor", "middle").text(axisTitle(figure.y));
  return {svg, area: svg.append("g").attr("class", "data"), x, y, left, right, top, inner, width, rowHeight: rows ? inner / rows : 0};
}

function drawReferences(frame, figure) {
  for (const line of figure.references || []) {
    const at = line.horizontal ? frame.y(line.value) : frame.x(line.value);
    frame.svg.append("path").attr("class", "reference")
      .attr("d", line.horizontal ? `M${frame.left},${at}H${frame.right}` : `M${at},${frame.top}V${frame.top + frame.inner}`);
    const after = at < (frame.left + frame.right) / 2;
    frame.svg.append("text").attr("font-size", 11.5)
      .attr("x", line.horizontal ? frame.right - 4 : at + (after ? 5 : -5)).attr("y", line.horizontal ? at - 5 : frame.top + 11)
      .attr("text-anchor", line.horizontal || !after ? "end" : "start").text(line.text);
  }
  if (!figure.diagonal) return;
  const low = Math.max(frame.x.domain()[0], frame.y.domain()[0]), high = Math.min(frame.x.domain()[1], frame.y.domain()[1]);
  if (low < high) frame.svg.append("path").attr("class", "reference").attr("d", `M${frame.x(low)},${frame.y(low)}L${frame.x(high)},${frame.y(high)}`);
}

const isNumber = value => value !== null && isFinite(value);

function drawLines(frame, figure) {
  const drawn = (x, y) => isNumber(x) && isNumber(y) && (figure.x.scale !== "logarithmic" || x > 0) && (figure.y.scale !== "logarithmic" || y > 0);
  figure.series.forEach((series, s) => {
    const points = (series.x || []).map((x, i) => [x, series.y[i]]);
    const line = d3.line().defined(p => drawn(p[0], p[1])).x(p => +frame.x(p[0]).toFixed(2)).y(p => +frame.y(p[1]).toFixed(2));
    frame.area.append("path").attr("class", `stroke s${s % 8}`).attr("stroke-dasharray", dashes[s % dashes.length]).attr("d", line(points) || "M0,0")
      .append("title").text(series.name);
    if (!series.marks && points.length > 1) return;
    for (const [x, y] of points) {
      if (drawn(x, y)) drawMark(frame.area, s, frame.x(x), frame.y(y), 36).append("title").text(`${series.name}: ${valueLabel(figure.x, x)}, ${valueLabel(figure.y, y)}`);
    }
  });
}

function drawScatter(frame, figure) {
  figure.series.forEach((series, s) => {
    const most = d3.max(series.values || []) || 1;
    const group = frame.area.append("g").attr("class", (series.x || []).length > 300 ? "many" : "");
    (series.x || []).forEach((x, i) => {
      const y = series.y[i];
      if (!isNumber(x) || !isNumber(y) || (figure.x.scale === "logarithmic" && x <= 0) || (figure.y.scale === "logarithmic" && y <= 0)) return;
      const value = series.values ? series.values[i] / most : 0.3;
      drawMark(group, s, frame.x(x), frame.y(y), 8 + 60 * Math.max(0, Math.min(1, value))).append("title")
        .text(`${series.name ? series.name + ": " : ""}${valueLabel(figure.x, x)}, ${valueLabel(figure.y, y)}`);
    });
  });
}

function drawHistogram(frame, figure) {
  figure.series.forEach((series, s) => series.y.forEach((count, i) => {
    if (!isNumber(count) || (figure.y.scale === "logarithmic" && count <= 0)) return;
    const left = frame.x(figure.edges[i]), right = frame.x(figure.edges[i + 1]), top = frame.y(count);
    frame.area.append("rect").attr("class", `fill s${s % 8}`).attr("x", left).attr("width", Math.max(0.5, right - left - 0.6))
      .attr("y", top).attr("height", Math.max(0, frame.top + frame.inner - top))
      .append("title").text(`${valueLabel(figure.x, figure.edges[i])} to ${valueLabel(figure.x, figure.edges[i + 1])}: ${numberLabel(count)}`);
  }));
}

function drawBars(frame, figure) {
  const height = Math.min(frame.rowHeight * 0.7, 22);
  figure.categories.forEach((name, i) => {
    let from = 0;
    const top = frame.top + frame.rowHeight * i + (frame.rowHeight - height) / 2;
    figure.series.forEach((series, s) => {
      const to = from + (series.y[i] || 0);
      if (to > from) {
        const left = frame.x(from), width = frame.x(to) - left;
        frame.area.append("rect").attr("class", `fill s${s % 8}`).attr("x", left).attr("y", top).attr("width", Math.max(1, width)).attr("height", height)
          .append("title").text(`${name}, ${series.name}: ${numberLabel(series.y[i])}`);
        drawHatch(frame.area, s, left, top, width, height);
      }
      from = to;
    });
  });
}

function drawTimeline(frame, figure) {
  const height = Math.max(1.5, Math.min(frame.rowHeight * 0.8, 16));
  const spans = figure.spans || [];
  const topOf = row => frame.top + frame.rowHeight * row + (frame.rowHeight - height) / 2;
  for (const [row, begin, end, s, text] of spans) {
    const left = frame.x(begin), width = Math.max(1, frame.x(end) - left);
    frame.area.append("rect").attr("class", `fill s${s % 8}`).attr("x", left).attr("y", topOf(row)).attr("width", width).attr("height", height)
      .append("title").text(`${figure.categories[row]}: ${text || figure.series[s].name}, ${valueLabel(figure.x, begin)} to ${valueLabel(figure.x, end)}`);
    drawHatch(frame.area, s, left, topOf(row), width, height);
  }
  const arm = Math.max(2, Math.min(height / 2, 4));
  for (const [row, , end, , text, failed] of spans) {
    if (!failed) continue;
    const x = frame.x(end), y = topOf(row) + height / 2;
    frame.area.append("path").attr("class", "failed").attr("d", `M${x - arm},${y - arm}L${x + arm},${y + arm}M${x - arm},${y + arm}L${x + arm},${y - arm}`)
      .append("title").text(text);
  }
}

// Colours of rising lightness, so that they are readable in grey.
function drawImages(container, figure) {
  const list = d3.select(container).append("div").attr("class", "images");
  const count = figure.images.length;
  const single = count === 1;
  const side = Math.min(180, (container.clientWidth || 480) / 2 - 8);
  for (const image of figure.images) {
    const box = list.append("div").style("width", single ? "100%" : `${side}px`);
    const canvas = box.append("canvas").attr("width", image.columns).attr("height", image.rows).attr("role", "img").attr("aria-label", image.name).node();
    canvas.style.width = "100%";
    if (single) canvas.style.height = `${Math.min(420, Math.max(80, image.rows * 8))}px`;
    const values = image.values.filter(isNumber);
    const low = d3.min(values), span = (d3.max(values) - low) || 1;
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(image.columns, image.rows);
    image.values.forEach((value, i) => {
      const colour = d3.rgb(d3.interpolateViridis(isNumber(value) ? (value - low) / span : 0));
      pixels.data.set([colour.r, colour.g, colour.b, isNumber(value) ? 255 : 0], i * 4);
    });
    context.putImageData(pixels, 0, 0);
    box.append("span").text(`${image.name} (${numberLabel(low)} to ${numberLabel(low + span)})`);
  }
}

const draw = {lines: drawLines, scatter: drawScatter, histogram: drawHistogram, bars: drawBars, timeline: drawTimeline};

function drawFigure(container, figure) {
  container.textContent = "";
  if (figure.kind === "images") return drawImages(container, figure);
  const frame = frameOf(container, figure);
  draw[figure.kind](frame, figure);
  drawReferences(frame, figure);
}
