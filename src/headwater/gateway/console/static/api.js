// The gateway's HTTP API. A refusal becomes an ApiError that says what happened and what to do.

const TIMEOUT_MS = 40_000;

export class ApiError extends Error {
  constructor(status, title, detail) {
    super(detail);
    this.status = status;
    this.title = title;
  }
}

export async function request(method, path, { body, signal, headers } = {}) {
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  let response;
  try {
    response = await fetch(path, {
      method,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === "TimeoutError";
    throw new ApiError(0, late ? "No answer in time" : "The gateway does not answer", late ? "It may be busy. Try again." : "Is headwater running, and reachable from here?");
  }
  if (response.status === 401 && !path.startsWith("/v1/session")) document.dispatchEvent(new CustomEvent("headwater:login"));
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "The answer is not JSON", text.slice(0, 200));
  }
  if (response.ok) return answer;
  throw new ApiError(
    response.status,
    answer?.title ?? `HTTP ${response.status}`,
    answer?.detail ?? answer?.message ?? (text.slice(0, 300) || "The gateway gave no reason."),
  );
}

export const get = (path, signal) => request("GET", path, { signal });

export const isGone = (error) => error instanceof ApiError && error.status === 404;

// At most `width` at a time; results in the order of the items.
export async function each(items, work, width = 4) {
  const results = new Array(items.length);
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      const mine = next++;
      results[mine] = await work(items[mine]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
  return results;
}
