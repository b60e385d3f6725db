// Keys: `/` goes to the filter, `g` and a letter open a page, `?` shows the list.
const AFTER_G_MS = 1500;

export function startKeys() {
  const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("keys-dialog"));
  let pressedG = -AFTER_G_MS;
  document.getElementById("keys-button")?.addEventListener("click", () => dialog?.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || dialog?.open) return;
    if (event.key === "?") dialog?.showModal();
    else if (event.key === "/") focusFilter(event);
    else if (event.timeStamp - pressedG < AFTER_G_MS) { pressedG = -AFTER_G_MS; openPage(event.key); }
    else if (event.key === "g") pressedG = event.timeStamp;
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, select, textarea"));
}

/** @param {KeyboardEvent} event */
function focusFilter(event) {
  const filter = document.querySelector("[data-filter]");
  if (!(filter instanceof HTMLElement)) return;
  event.preventDefault();
  filter.focus();
  if (filter instanceof HTMLInputElement) filter.select();
}

/** @param {string} key */
function openPage(key) {
  if (!/^[a-z]$/.test(key)) return;
  const link = document.querySelector(`nav a[data-key="${key}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
}
