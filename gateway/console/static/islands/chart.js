// A chart over time. Its element names the feed, the series and the unit; templates/parts/page.html has the macro `chart`.
// The range is in the page's address, and all charts of a page have the same: `?range=15m`, `1h`, `6h` or `24h`.
import uPlot from "../vendor/uplot/uPlot.esm.js";
import { amount } from "../amounts.js";
import { feed, repeat } from "../feed.js";
import { colour } from "../theme.js";

const EVERY_MS = 5000;
/** How often a range is read that has a point each minute. */
const SLOWLY_MS = 30_000;
/** The ranges in seconds, by their names. @type {Record<string, number>} */
const RANGES = { "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400 };
/** @type {Record<string, string>} */
const WORDS = { "15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h" };
const HEIGHT = 170, LEGEND_HEIGHT = 24;
/** The colours of verdicts, which are the same on every page. @type {Record<string, string>} */
const COLOURS = { duplicates_per_s: "--duplicate", refusals_per_s: "--refused" };
/** The series that has a scale of its own, on the right: readers may fetch many times what is stored. */
const OWN_SCALE = "bytes_out_per_s";
/** The steps of an axis by unit: powers of two, and times that people read. @type {Record<string, number[]>} */
const STEPS = {
  bytes: Array.from({ length: 50 }, (_, power) => 2 ** power),
  ms: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5],
};
/** Peaks are cut where the highest value is more than so many times the one that 98 % of the values do not exceed. */
const PEAK = 3, USUAL_SHARE = 0.98, FEWEST = 20;

/** @param {HTMLElement} element */
export function start(element) {
  const canvas = /** @type {HTMLElement} */ (element.querySelector(".chart-canvas"));
  const now = /** @type {HTMLElement} */ (element.querySelector(".chart-now"));
  const note = /** @type {HTMLButtonElement} */ (element.querySelector(".chart-note"));
  const choice = /** @type {HTMLSelectElement} */ (element.querySelector(".chart-range"));
  const unit = element.dataset.unit ?? "count";
  const names = (element.dataset.series ?? "").split(" ");
  const labels = (element.dataset.labels ?? "").split("|");
  /** @type {number[]} */ let times = [];
  /** @type {(number | null)[][]} */ let columns = names.map(() => []);
  /** @type {uPlot | null} */ let plot = null;
  let cutsPeaks = true, readMs = 0;

  const data = () => [times.map((time) => time / 1000), ...columns];
  const span = () => {
    const end = (times.at(-1) ?? Date.now()) / 1000;
    return /** @type {[number, number]} */ ([end - RANGES[rangeOfPage()], end]);
  };
  const top = (/** @type {number[]} */ indexes) => {
    const found = peakOf(indexes.map((index) => columns[index]));
    return (cutsPeaks && found ? found.usual * 1.5 : highest(indexes.map((index) => columns[index])) * 1.1) || 1;
  };
  const draw = () => {
    plot?.destroy();
    canvas.replaceChildren();
    plot = new uPlot(options(names, labels, unit, canvas.clientWidth, span, top), data(), canvas);
  };
  const show = () => {
    if (plot) plot.setData(data()); else draw();
    const peaks = scalesOf(names).map((indexes) => peakOf(indexes.map((index) => columns[index]))).filter((peak) => peak !== null);
    const peak = peaks[0];
    note.textContent = !peak ? "" : cutsPeaks
      ? `Cut: a peak of ${amount(peak.value, unit)} at ${clock(times[peak.index] / 1000, true)}. Show it whole`
      : "Cut peaks, so that the rest can be read";
    note.hidden = !peak;
  };

  const update = async () => {
    const range = rangeOfPage();
    choice.value = range;
    if (range !== "15m" && Date.now() - readMs < SLOWLY_MS) return;
    readMs = Date.now();
    try {
      const found = await feed(element.dataset.source ?? "", { range });
      times = found.times;
      columns = names.map((name) => found.series[name] ?? times.map(() => null));
      const newest = columns.map((column) => column.findLast((value) => value !== null));
      now.textContent = newest.every((value) => value === undefined)
        ? (found.error ?? "no figures yet")
        : newest.map((value, index) => (labels.length > 1 ? `${labels[index]} ` : "") + amount(value, unit)).join(" · ");
      canvas.setAttribute("aria-label", `Chart of ${element.dataset.title} over ${WORDS[range]}, now ${now.textContent}`);
      show();
      element.dataset.points = String(times.length);
    } catch (error) {
      now.textContent = error instanceof Error ? error.message : String(error);
    }
  };

  choice.replaceChildren(...Object.keys(RANGES).map((name) => new Option(WORDS[name], name)));
  choice.value = rangeOfPage();
  choice.addEventListener("change", () => {
    const address = new URL(location.href);
    address.searchParams.set("range", choice.value);
    history.replaceState(history.state, "", address);
    document.dispatchEvent(new Event("range"));
  });
  note.addEventListener("click", () => {
    cutsPeaks = !cutsPeaks;
    show();
  });
  document.addEventListener("range", () => {
    readMs = 0;
    update();
  });
  new ResizeObserver(() => plot?.setSize({ width: canvas.clientWidth, height: height(labels) })).observe(canvas);
  document.addEventListener("theme", draw);
  repeat(update, EVERY_MS);
}

/** Returns the range that the page's address names. */
function rangeOfPage() {
  const name = new URLSearchParams(location.search).get("range") ?? "";
  return name in RANGES ? name : "15m";
}

/** Returns the indexes of the series of each scale. @param {string[]} names */
function scalesOf(names) {
  const own = names.indexOf(OWN_SCALE);
  const all = names.map((_, index) => index);
  return own > 0 ? [all.filter((index) => index !== own), [own]] : [all];
}

/** @param {(number | null)[][]} columns */
function highest(columns) {
  return columns.flat().reduce((/** @type {number} */ most, value) => Math.max(most, value ?? 0), 0);
}

/**
 * Returns the highest value and where it is, when it would flatten the rest; and the value that most do not exceed.
 * @param {(number | null)[][]} columns
 */
function peakOf(columns) {
  const values = columns.flat().filter((value) => value !== null).sort((one, other) => one - other);
  const value = values.at(-1), usual = values[Math.floor(values.length * USUAL_SHARE) - 1];
  if (value === undefined || values.length < FEWEST || !(usual > 0) || value <= usual * PEAK) return null;
  return { value, usual, index: Math.max(...columns.map((column) => column.indexOf(value))) };
}

/** @param {string[]} labels */
function height(labels) {
  return labels.length > 1 ? HEIGHT - LEGEND_HEIGHT : HEIGHT;
}

/** Returns a time of day; midnight is the day. @param {number} time @param {boolean} [isExact] */
function clock(time, isExact) {
  const at = new Date(time * 1000);
  if (isExact) return at.toTimeString().slice(0, 8);
  const text = at.toTimeString().slice(0, 5);
  return text === "00:00" ? new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric" }).format(at) : text;
}

/**
 * @param {string[]} names @param {string[]} labels @param {string} unit @param {number} width
 * @param {() => [number, number]} span @param {(indexes: number[]) => number} top
 */
function options(names, labels, unit, width, span, top) {
  const scales = scalesOf(names);
  const scaleOf = (/** @type {number} */ index) => (scales.length > 1 && scales[1].includes(index) ? "own" : "y");
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, space: 80 };
  const seriesColour = (/** @type {number} */ index) => colour(COLOURS[names[index]] ?? `--series-${index + 1}`);
  const amounts = {
    ...axis, space: 34, incrs: STEPS[unit],
    size: (/** @type {any} */ _, /** @type {string[] | null} */ texts) => 14 + 7 * Math.max(3, ...(texts ?? []).map((text) => text.length)),
    values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => amount(tick, unit)),
  };
  return {
    width, height: height(labels),
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: labels.length > 1, live: false },
    padding: [8, scales.length > 1 ? 0 : 26, 0, 0],
    scales: {
      x: { range: span }, y: { range: () => [0, top(scales[0])] },
      ...(scales.length > 1 ? { own: { range: () => [0, top(scales[1])] } } : {}),
    },
    axes: [
      { ...axis, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => clock(tick)) },
      { ...amounts, ...(scales.length > 1 ? { stroke: seriesColour(0) } : {}) },
      ...(scales.length > 1 ? [{ ...amounts, scale: "own", side: 1, grid: { show: false }, stroke: seriesColour(scales[1][0]) }] : []),
    ],
    series: [{}, ...labels.map((label, index) => ({
      label, scale: scaleOf(index), stroke: seriesColour(index), width: 1.6, spanGaps: false,
      fill: labels.length === 1 ? `${colour("--series-1")}22` : undefined,
      points: { show: (/** @type {any} */ drawn) => drawn.data[0].length < FEWEST, size: 4 },
    }))],
  };
}
