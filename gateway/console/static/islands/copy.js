// A button that copies the content of its section.
const SHOWN_MS = 2000;

/** @param {HTMLElement} button */
export function start(button) {
  const label = [...button.childNodes];
  button.addEventListener("click", async () => {
    const content = button.closest("section")?.querySelector("pre");
    if (!content) return;
    button.textContent = (await copy(content)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => button.replaceChildren(...label), SHOWN_MS);
  });
}

/** Copies a text. Without the clipboard, which needs HTTPS or this machine, the text is selected. @param {HTMLElement} content */
async function copy(content) {
  try {
    await navigator.clipboard.writeText(content.textContent ?? "");
    return true;
  } catch {
    getSelection()?.selectAllChildren(content);
    return false;
  }
}
