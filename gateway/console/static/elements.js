/** Returns a new element. @param {string} kind @param {string} className @param {...(Node | string)} content */
export function made(kind, className, ...content) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  element.append(...content);
  return element;
}
