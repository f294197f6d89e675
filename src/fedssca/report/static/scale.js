// Scales map values to positions on an axis and choose round numbers for its ticks.

/** A linear scale from [low, high] to [from, to].
 *  `at(value)` gives the position, `back(position)` the value, `ticks(count)` about `count` round values. */
export function linearScale(low, high, from, to) {
  const span = high - low || 1;
  return {
    at: (value) => from + ((value - low) / span) * (to - from),
    back: (position) => low + ((position - from) / (to - from)) * span,
    ticks: (count) => linearTicks(low, high, count),
  };
}

/** The same with a logarithmic axis; both ends must be positive. */
export function logScale(low, high, from, to) {
  const inner = linearScale(Math.log10(low), Math.log10(high), from, to);
  return {
    at: (value) => inner.at(Math.log10(Math.max(value, low / 10))),
    back: (position) => 10 ** inner.back(position),
    ticks: (count) => logTicks(low, high, count),
  };
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((each) => each >= rough * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high, count) {
  const from = Math.floor(Math.log10(low));
  const to = Math.ceil(Math.log10(high));
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = from; power <= to; power += 1) {
      for (const step of steps) {
        const tick = Number((step * 10 ** power).toPrecision(6));
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    }
    if (ticks.length <= count + 2) return ticks.length > 1 ? ticks : linearTicks(low, high, count);
  }
  const every = Math.ceil((to - from) / count);
  const ticks = [];
  for (let power = from; power <= to; power += every) {
    const tick = Number(`1e${power}`);
    if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
  }
  return ticks;
}

/** The range of numbers with a margin on both sides; on a logarithmic axis the margin is a factor. */
export function range(values, logarithmic) {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  if (logarithmic) {
    const margin = low === high ? 2 : (high / low) ** 0.05;
    return [low / margin, high * margin];
  }
  const margin = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.06;
  const floor = low >= 0 && low - margin < 0 ? 0 : low - margin;
  return [floor, high + margin];
}
