// The light and the dark theme, and the colour and dash pattern of each run.

import { el, svg } from "./dom.js";

const KEY = "fedssca-theme";
const DASHES = ["", "7 4", "2 3"];

let palettes = { light: ["#000"], dark: ["#fff"] };
let system = { matches: false };
let chosen = null;
let button = null;
let listeners = [];

/** Apply the theme that the user chose earlier, or else the one that the system prefers. */
export function startTheme(given) {
  palettes = given;
  system = matchMedia("(prefers-color-scheme: dark)");
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // A file opened from disk may have no storage. The choice then lasts as long as the page.
  }
  system.addEventListener("change", apply);
  apply();
}

/** The button that switches between the light and the dark theme. */
export function themeButton() {
  button = el(
    "button",
    { type: "button", class: "quiet", "aria-label": "Light or dark page", onclick: toggle },
    label(),
  );
  return button;
}

/** Call `listener` after every change of the theme, until `dropThemeListeners`. */
export function onThemeChange(listener) {
  listeners.push(listener);
}

/** Remove all listeners: their view is no longer shown. */
export function dropThemeListeners() {
  listeners = [];
}

/** The value of a colour variable of the style sheet, in the present theme. */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Colour and dash pattern of the n-th run; 21 combinations differ. */
export function lineStyle(number) {
  const palette = currentPalette();
  return {
    colour: palette[number % palette.length],
    dash: DASHES[Math.floor(number / palette.length) % DASHES.length],
  };
}

/** A short line in the style of the n-th run, for legends and tables. */
export function swatch(number) {
  const line = svg("line", {
    x1: 1,
    y1: 6,
    x2: 25,
    y2: 6,
    stroke: `var(--run-${number % currentPalette().length})`,
    "stroke-width": 2.5,
    "stroke-dasharray": lineStyle(number).dash,
  });
  return svg(
    "svg",
    { class: "swatch", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
    line,
  );
}

function isDark() {
  return chosen ? chosen === "dark" : system.matches;
}

function currentPalette() {
  return palettes[isDark() ? "dark" : "light"];
}

function label() {
  return isDark() ? "Light" : "Dark";
}

function apply() {
  const root = document.documentElement;
  root.dataset.theme = isDark() ? "dark" : "light";
  currentPalette().forEach((colour, k) => {
    root.style.setProperty(`--run-${k}`, colour);
  });
  if (button) button.textContent = label();
  for (const listener of listeners) listener();
}

function toggle() {
  chosen = isDark() ? "light" : "dark";
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // As above.
  }
  apply();
}
