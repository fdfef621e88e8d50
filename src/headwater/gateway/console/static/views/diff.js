// What changed between two texts, line by line: the longest common subsequence stays, the rest was removed or added.

const MAX_CELLS = 4_000_000;

export function lineDiff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  const removed = (text) => ({ kind: "removed", text });
  const added = (text) => ({ kind: "added", text });
  if (a.length * b.length > MAX_CELLS) return [...a.map(removed), ...b.map(added)];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) { lines.push({ kind: "same", text: a[i] }); i++; j++; }
    else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) lines.push(removed(a[i++]));
    else lines.push(added(b[j++]));
  }
  return [...lines, ...a.slice(i).map(removed), ...b.slice(j).map(added)];
}
