// Keys: `s` goes to the search, `/` to the filter, `g` and a letter open a page, `?` shows the list.
const AFTER_G_MS = 1500;

export function startKeys() {
  const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("keys-dialog"));
  let pressedG = -AFTER_G_MS;
  document.getElementById("keys-button")?.addEventListener("click", () => dialog?.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || dialog?.open) return;
    if (event.key === "?") dialog?.showModal();
    else if (event.key === "/") focus(event, document.querySelector("[data-filter]"));
    else if (event.timeStamp - pressedG < AFTER_G_MS) { pressedG = -AFTER_G_MS; openPage(event.key); }
    else if (event.key === "g") pressedG = event.timeStamp;
    else if (event.key === "s") focus(event, document.getElementById("search"));
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, select, textarea"));
}

/** @param {KeyboardEvent} event @param {Element | null} field */
function focus(event, field) {
  if (!(field instanceof HTMLElement)) return;
  event.preventDefault();
  field.focus();
  if (field instanceof HTMLInputElement) field.select();
}

/** @param {string} key */
function openPage(key) {
  if (!/^[a-z]$/.test(key)) return;
  const link = document.querySelector(`nav a[data-key="${key}"]`);
  if (link instanceof HTMLAnchorElement) link.click();
}
