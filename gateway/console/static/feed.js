// Asks the console.

/** An error whose message is a sentence for the person. */
export class FeedError extends Error {}

/**
 * Returns the response of an address, whatever its status. Throws FeedError, and the error of a signal that aborts.
 * @param {string} path
 * @param {string} type the media type
 * @param {AbortSignal} [signal]
 */
export async function answered(path, type, signal) {
  try {
    return await fetch(path, { signal, headers: { Accept: type }, cache: "no-store" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new FeedError("The console does not answer. It may have ended.");
  }
}

/**
 * Returns the JSON of an address, asked with further fields. Throws FeedError.
 * @param {string} path
 * @param {Record<string, string>} [fields]
 * @param {AbortSignal} [signal]
 */
export async function feed(path, fields, signal) {
  const address = fields ? `${path}${path.includes("?") ? "&" : "?"}${new URLSearchParams(fields)}` : path;
  const response = await answered(address, "application/json", signal);
  const value = await response.json().catch(() => ({ error: `The console answers with status ${response.status}.` }));
  if (!response.ok) throw new FeedError(value.error ?? "The console refused the question.");
  return value;
}

/**
 * Calls a function again and again while the page is visible. Returns a function that ends this.
 * @param {() => Promise<void>} call
 * @param {number} everyMs
 */
export function repeat(call, everyMs) {
  let timer = 0;
  let ended = false;
  const next = async () => {
    if (!document.hidden) await call();
    if (!ended) timer = window.setTimeout(next, everyMs);
  };
  next();
  return () => { ended = true; window.clearTimeout(timer); };
}
