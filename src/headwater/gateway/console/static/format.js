// Numbers, sizes and times as people read them. What is not known is a dash.

const DASH = "–";
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? DASH : whole.format(value));

export function rate(value) {
  if (value === null || value === undefined) return DASH;
  return value >= 10000 ? short.format(value) : whole.format(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);
}

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  let rest = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]) {
    if (rest < 1024 || unit === "EiB") return `${rest < 10 && unit !== "B" ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
    rest /= 1024;
  }
}

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return DASH;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return `${day} ${clock}`;
}

export function ago(ms) {
  if (ms === null || ms === undefined || ms < 0) return DASH;
  return `${duration(Math.max(0, Date.now() - ms))} ago`;
}

// Kafka's way to say that there is none: the largest number of 63 or 31 bits. Longer than a thousand years is no time, either.
const YEAR_MS = 365.25 * 86400000;
export const isForEver = (ms) => ms >= 1000 * YEAR_MS;
const ONCE_IN_A_WHILE = /^flush\./;

// What the value of a setting means, where the number alone does not tell; null where it does.
export function meaning(name, value) {
  const number = value === null || value === "" ? NaN : Number(value);
  if (Number.isNaN(number)) return null;
  const hasUnit = /\.(ms|bytes|messages)$/.test(name);
  const isLimitless = hasUnit && (number >= 2 ** 62 || (name.endsWith(".ms") && isForEver(number)));
  if (isLimitless) return ONCE_IN_A_WHILE.test(name) ? "never" : name === "retention.ms" ? "for ever" : "no limit";
  if (number === -1 && name === "retention.ms") return "for ever";
  if (number === -1 && name === "retention.bytes") return "no limit";
  if (number === -2 && name.startsWith("local.retention.")) return "as long as the topic";
  if (name.endsWith(".ms") && number >= 1000) return duration(number);
  return name.endsWith(".bytes") && number >= 1024 ? bytes(number) : null;
}

export function duration(ms) {
  if (isForEver(ms)) return "for ever";
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) {
      const whole = ms / size;
      return `${whole < 10 && !Number.isInteger(whole) ? whole.toFixed(1).replace(".0", "") : Math.round(whole)} ${unit}`;
    }
  }
  return `${Math.round(ms)} ms`;
}

// JSON is shown with indentation; anything else as it is. Huge numbers must not change, so only text that survives is.
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  const trimmed = value.trimStart();
  if (!trimmed.startsWith("{") && !trimmed.startsWith("[")) return value;
  try {
    const parsed = JSON.parse(value);
    const compact = (text) => text.replace(/\s+/g, "");
    return compact(JSON.stringify(parsed)) === compact(value) ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

export const oneLine = (value, limit = 400) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > limit ? text.slice(0, limit) + "…" : text;
};
