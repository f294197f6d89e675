// Numbers as text.

/** A number for people to read. Kinds: number, percent, bytes, seconds, count. */
export function show(value, kind = "number", digits = 4) {
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
  return String(Number(value.toPrecision(digits)));
}

function bytes(value, digits) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let size = value;
  let step = 0;
  while (Math.abs(size) >= 1000 && step < units.length - 1) {
    size /= 1000;
    step += 1;
  }
  return `${short(size, digits)} ${units[step]}`;
}

function seconds(value, digits) {
  if (value >= 5400) return `${short(value / 3600, digits)} h`;
  if (value >= 180) return `${short(value / 60, digits)} min`;
  return `${short(value, digits)} s`;
}

function short(value, digits) {
  return Number(value.toPrecision(Math.min(digits, 3)));
}
