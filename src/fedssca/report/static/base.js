"use strict";
// What every script here builds on: elements made of text (never of HTML), numbers as text, themes.

const DATA = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes and children; strings become text, functions listeners. */
function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A number as people write it: 4 digits, SI prefixes for bytes, minutes for long times. */
function show(value, kind = "number", digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (kind === "percent")
    return `${(100 * value).toFixed(digits > 3 ? 2 : 1).replace(/\.0+$/, "")}%`;
  if (kind === "bytes") return bytes(value, digits);
  if (kind === "seconds") return seconds(value, digits);
  if (kind === "count") return Math.round(value).toLocaleString("en");
  return plain(value, digits);
}

function plain(value, digits) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) {
    return value
      .toExponential(Math.max(0, digits - 2))
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  }
  const text = value.toPrecision(digits);
  return String(Number(text));
}

function bytes(value, digits) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let step = 0;
  while (Math.abs(value) >= 1000 && step < units.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${Number(value.toPrecision(Math.min(digits, 3)))} ${units[step]}`;
}

function seconds(value, digits) {
  if (value >= 5400) return `${Number((value / 3600).toPrecision(Math.min(digits, 3)))} h`;
  if (value >= 180) return `${Number((value / 60).toPrecision(Math.min(digits, 3)))} min`;
  return `${Number(value.toPrecision(Math.min(digits, 3)))} s`;
}

/** Light or dark: what the system prefers until somebody chooses. */
const Theme = (() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let listeners = [];
  let button = null;
  let chosen = null;
  try {
    chosen = localStorage.getItem("fedssca-theme");
  } catch {
    // A file opened from disk may have no storage: then the choice lasts as long as the page.
  }
  const dark = () => (chosen ? chosen === "dark" : system.matches);
  const palette = () => DATA.palette[dark() ? "dark" : "light"];
  const label = () => (dark() ? "Light" : "Dark");
  function apply() {
    const root = document.documentElement;
    root.dataset.theme = dark() ? "dark" : "light";
    palette().forEach((colour, k) => root.style.setProperty(`--run-${k}`, colour));
    if (button) button.textContent = label();
    listeners.forEach((listener) => listener());
  }
  function toggle() {
    chosen = dark() ? "light" : "dark";
    try {
      localStorage.setItem("fedssca-theme", chosen);
    } catch {
      // As above.
    }
    apply();
  }
  system.addEventListener("change", apply);
  apply();
  return {
    toggle,
    palette,
    onChange: (listener) => listeners.push(listener),
    /** Another view is on: nobody of the old one needs to know any more. */
    forget() {
      listeners = [];
    },
    colour: (name) =>
      getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
    button() {
      button = el(
        "button",
        { type: "button", class: "quiet", "aria-label": "Light or dark page", onclick: toggle },
        label(),
      );
      return button;
    },
  };
})();

const DASHES = ["", "7 4", "2 3"];

/** Colour and dashes of the n-th run: 21 that differ. */
function looks(number) {
  const palette = Theme.palette();
  return {
    colour: palette[number % palette.length],
    dash: DASHES[Math.floor(number / palette.length) % DASHES.length],
  };
}

/** A short line as the n-th run is drawn, for legends and tables. */
function swatch(number) {
  const look = looks(number);
  const line = svg("line", {
    x1: 1,
    y1: 6,
    x2: 25,
    y2: 6,
    stroke: `var(--run-${number % Theme.palette().length})`,
    "stroke-width": 2.5,
    "stroke-dasharray": look.dash,
  });
  return svg(
    "svg",
    { class: "swatch", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
    line,
  );
}
