"use strict";
// A chart or table as a file: SVG and PNG as drawn, CSV from the numbers. Nothing leaves the page.

/** Hand a file to the browser's downloads. */
function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function fileName(title, ending) {
  const clean = title
    .normalize("NFKD")
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase();
  return `${clean.slice(0, 60) || "chart"}.${ending}`;
}

/** A cell of CSV: quoted where needed; what a spreadsheet would compute is made text. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv(rows) {
  return new Blob([rows.map((row) => row.map(cell).join(",")).join("\r\n"), "\r\n"], {
    type: "text/csv",
  });
}

function chartCsv(spec) {
  const rows = [["run", spec.xLabel, spec.yLabel, "rows"]];
  for (const line of spec.lines) {
    for (const [x, y] of line.points)
      rows.push([line.name, x, y, line.held ? "held out" : "training"]);
  }
  return csv(rows);
}

function chartSvg(spec) {
  const lines = spec.lines.filter((line) => !line.held).slice(0, 12);
  const drawing = drawChart(spec, 720, 400, true);
  const tall = 400 + 24 + 18 * lines.length + 8;
  const legend = svg("g", {});
  drawing.setAttribute("height", tall);
  drawing.setAttribute("viewBox", `0 -24 720 ${tall}`);
  legend.append(
    svg("rect", { x: 0, y: 400, width: 720, height: tall - 424, fill: Theme.colour("card") }),
  );
  lines.forEach((line, k) => {
    const look = looks(line.number);
    const y = 412 + 18 * k;
    legend.append(
      svg("line", {
        x1: MARGIN.left,
        x2: MARGIN.left + 26,
        y1: y,
        y2: y,
        stroke: look.colour,
        "stroke-width": 2.5,
        "stroke-dasharray": look.dash,
      }),
    );
    legend.append(
      svg(
        "text",
        { x: MARGIN.left + 34, y: y + 4, fill: Theme.colour("text"), "font-size": 12 },
        line.name,
      ),
    );
  });
  drawing.append(legend);
  return new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" });
}

/** The SVG on a canvas of twice the size. */
async function asPng(blob) {
  const text = await blob.text();
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = el("canvas", { width: picture.width * 2, height: picture.height * 2 });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
}

/** A small menu: PNG, SVG, CSV of the chart that `spec()` gives. */
function saveMenu(spec) {
  const menu = el("details", { class: "menu" });
  const entry = (label, make) =>
    el(
      "button",
      {
        type: "button",
        onclick: async () => {
          const now = spec();
          download(fileName(now.title, label.toLowerCase()), await make(now));
          menu.open = false;
          menu.querySelector("summary").focus();
        },
      },
      label,
    );
  menu.append(
    el("summary", { "aria-label": "Save this chart" }, "Save"),
    el(
      "div",
      {},
      entry("PNG", (now) => asPng(chartSvg(now))),
      entry("SVG", chartSvg),
      entry("CSV", chartCsv),
    ),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") menu.open = false;
  });
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(event.relatedTarget)) menu.open = false;
  });
  return menu;
}
