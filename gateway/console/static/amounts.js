// Numbers and sizes as people read them.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number} value */
export function count(value) {
  return new Intl.NumberFormat("en", { maximumFractionDigits: value >= 100 ? 0 : value >= 1 ? 1 : 2 }).format(value);
}

/** @param {number} value */
export function size(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${value.toFixed(unit === 0 || value >= 10 ? 0 : 1)} ${UNITS[unit]}`;
}

/** Returns a length of time in its largest two units. @param {number} ms */
export function span(ms) {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const units = /** @type {const} */ ([["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]]);
  const first = units.findIndex(([, length]) => ms >= length);
  const [unit, length] = units[first];
  const rest = units[first + 1];
  const whole = Math.floor(ms / length);
  const left = rest ? Math.floor((ms % length) / rest[1]) : 0;
  return left ? `${whole} ${unit} ${left} ${rest[0]}` : `${whole} ${unit}`;
}

/** Returns a value in its unit: count, bytes or ms. @param {number | null | undefined} value @param {string} unit */
export function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes") return size(value);
  if (unit !== "ms") return count(value);
  return value < 10_000 ? `${count(value)} ms` : span(value);
}
