// Shows times in the zone of the browser. The server writes <time datetime="…Z">, and UTC for browsers without scripts.
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

/** @param {number} number @param {number} [digits] */
const padded = (number, digits = 2) => String(number).padStart(digits, "0");

/** Returns a time as `2026-01-31 13:45:00.123`, in the zone of the browser. @param {Date} at */
export function localTime(at) {
  const day = `${at.getFullYear()}-${padded(at.getMonth() + 1)}-${padded(at.getDate())}`;
  const time = `${padded(at.getHours())}:${padded(at.getMinutes())}:${padded(at.getSeconds())}`;
  return `${day} ${time}.${padded(at.getMilliseconds(), 3)}`;
}

/** Rewrites the times inside an element. @param {ParentNode} parent */
export function showTimes(parent) {
  for (const element of parent.querySelectorAll("time[datetime]")) {
    const at = new Date(element.getAttribute("datetime") ?? "");
    if (Number.isNaN(at.getTime())) continue;
    if (!element.hasAttribute("data-ago")) element.textContent = localTime(at);
    element.setAttribute("title", exact.format(at));
  }
}
