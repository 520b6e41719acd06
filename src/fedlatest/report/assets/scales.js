// Round numbers for axes, and search in sorted numbers.

/** Return the index of the value nearest to x in ascending numbers; -1 if there are none. */
function nearest(values, x) {
  let low = 0, high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle; else high = middle;
  }
  return high < 0 ? -1 : Math.abs(values[high] - x) < Math.abs(values[low] - x) ? high : low;
}

/** Return about `count` round numbers between low and high, as {value, text}. */
function ticks(low, high, count, format = null) {
  const rough = (high - low) / Math.max(2, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || rough;
  const digits = Math.max(0, -Math.floor(Math.log10(step * 1.001)));
  const places = { minimumFractionDigits: Math.min(digits, 8), maximumFractionDigits: 8 };
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
    const value = Number((i * step).toPrecision(12));
    found.push({ value, text: format ? format(value) : value.toLocaleString("en", places) });
  }
  return found;
}

/** Return about `count` round integers between low and high, as {value, text}. */
function wholeTicks(low, high, count) {
  return ticks(low, high, count, whole).filter(({ value }) => Number.isInteger(value));
}

/** Return 1, 2 and 5 times powers of ten, or powers of ten alone; other round numbers if the range is too short. */
function logTicks(low, high) {
  const decades = Math.log10(high / low), found = [];
  const isModerate = (value) => value >= 1e-4 && value < 1e6;
  const decimal = (value) => value.toLocaleString("en", { maximumFractionDigits: 6 });
  const format = (value) => (isModerate(value) ? decimal(value) : value.toExponential());
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const m of decades > 4 ? [1] : [1, 2, 5]) {
      const value = Number((m * 10 ** power).toPrecision(3));
      if (value >= low && value <= high) found.push({ value, text: format(value) });
    }
  }
  return found.length > 2 ? found : ticks(low, high, 5);
}
