// Says above a live part of the page why it does not change any more.
/** @type {WeakMap<HTMLElement, HTMLElement>} */
const notices = new WeakMap();

/** Shows a sentence before an element; null removes it. @param {HTMLElement} element @param {unknown} problem */
export function showProblem(element, problem) {
  if (problem === null || problem === undefined) {
    notices.get(element)?.remove();
    notices.delete(element);
    return;
  }
  const notice = notices.get(element) ?? document.createElement("p");
  notice.className = "notice warn";
  notice.setAttribute("role", "status");
  notice.textContent = `This part does not change now: ${problem instanceof Error ? problem.message : String(problem)}`;
  if (!notice.isConnected) element.before(notice);
  notices.set(element, notice);
}
