// Pages of records over one partition or many, both ways. A page covers, in each partition, the offsets [low, high); the
// next one begins at high, the one before ends at low. Offsets may have gaps (compaction, transactions), so looking back
// takes a wider window until something is found.

import { ApiError, each, get } from "../api.js";

const TRIES = 6;
const AT_ONCE = 10_000;
const MAX_BYTES = 4 * 1024 * 1024;
const MAX_READS = 64;
export const MAX_PARTITIONS = 64;

export class Pages {
  constructor(api, { partitions, size, key, decode }, signal) {
    this.api = api;
    this.size = size;
    this.key = key;
    this.decode = decode;
    this.signal = signal;
    this.partitions = partitions.map((one) => one.partition);
    this.start = new Map(partitions.map((one) => [one.partition, one.start_offset ?? 0]));
    this.ends = new Map(partitions.map((one) => [one.partition, one.end_offset ?? 0]));
    this.low = new Map(this.ends);
    this.high = new Map(this.ends);
    this.isOne = partitions.length === 1;
  }

  // From a place that the gateway understands: an age, a time, beginning. Ascending.
  async from(position) {
    const answer = await this.#read({ from: position, limit: this.size, ...(this.isOne ? { partition: this.partitions[0] } : {}) });
    for (const partition of this.partitions) {
      const next = answer.next[partition] ?? this.high.get(partition);
      const own = answer.records.filter((record) => record.partition === partition).map((record) => record.offset);
      this.low.set(partition, own.length ? Math.min(...own) : next);
      this.high.set(partition, next);
    }
    return answer.records;
  }

  async at(offset) {
    for (const partition of this.partitions) this.high.set(partition, Math.min(Math.max(offset, this.start.get(partition)), this.ends.get(partition)));
    return this.newer();
  }

  async newest() {
    this.low = new Map(this.ends);
    this.high = new Map(this.ends);
    return this.older();
  }

  async newer() {
    const answers = await each(this.partitions, (partition) => this.#read({ partition, offset: this.high.get(partition), limit: this.size }));
    const found = merged(answers.flatMap((answer) => answer.records)).slice(0, this.size);
    this.low = new Map(this.high);
    this.partitions.forEach((partition, index) => {
      const own = found.filter((record) => record.partition === partition);
      const all = answers[index].records.length;
      const next = own.length < all ? (own.length ? own.at(-1).offset + 1 : this.high.get(partition)) : answers[index].next[partition];
      this.high.set(partition, next ?? this.high.get(partition));
    });
    return found;
  }

  async older() {
    const before = new Map(this.low);
    const looked = new Map(this.low);
    let found = [];
    for (let window = this.size, left = TRIES; left > 0 && found.length < this.size; window *= 4, left--) {
      const open = this.partitions.filter((partition) => looked.get(partition) > this.start.get(partition));
      if (open.length === 0) break;
      const pages = await each(open, async (partition) => {
        const end = looked.get(partition);
        const begin = Math.max(this.start.get(partition), end - window);
        looked.set(partition, begin);
        return this.#last(partition, begin, end);
      });
      found = merged([...found, ...pages.flat()]);
    }
    const dropped = found.slice(0, Math.max(0, found.length - this.size));
    found = found.slice(dropped.length);
    this.high = before;
    for (const partition of this.partitions) {
      const own = found.filter((record) => record.partition === partition);
      const hasMore = dropped.some((record) => record.partition === partition);
      this.low.set(partition, own.length && hasMore ? own[0].offset : hasMore ? before.get(partition) : looked.get(partition));
    }
    return found;
  }

  // What came since the last page, for the live view: asks only the partitions that grew.
  async arrived() {
    const facts = await get(this.api, this.signal);
    const grown = facts.partitions.filter((one) => this.partitions.includes(one.partition) && one.end_offset > this.high.get(one.partition));
    for (const one of grown) this.ends.set(one.partition, one.end_offset);
    const answers = await each(grown, (one) => {
      // A reader that fell far behind goes to the end: nobody can read that fast.
      const offset = Math.max(this.high.get(one.partition), one.end_offset - this.size);
      return this.#read({ partition: one.partition, offset, limit: this.size });
    });
    grown.forEach((one, index) => this.high.set(one.partition, answers[index].next[one.partition]));
    return merged(answers.flatMap((answer) => answer.records)).slice(-this.size);
  }

  get hasOlder() {
    return !this.key && this.partitions.some((partition) => this.low.get(partition) > this.start.get(partition));
  }

  get hasNewer() {
    return this.partitions.some((partition) => this.high.get(partition) < this.ends.get(partition));
  }

  // The last records of [begin, end): one answer may be too small for all of them, so it is read to its end.
  async #last(partition, begin, end) {
    let kept = [];
    let offset = begin;
    for (let left = MAX_READS; offset < end; left--) {
      if (left === 0) throw new ApiError(0, "Too much to look through", "Choose a partition, and an offset or a time to start at.");
      const answer = await this.#read({ partition, offset, limit: Math.min(end - begin, AT_ONCE) });
      kept = [...kept, ...answer.records.filter((record) => record.offset < end)].slice(-this.size);
      const next = answer.next[partition];
      if (!(next > offset)) break;
      offset = next;
    }
    return kept;
  }

  async #read(query) {
    const asked = new URLSearchParams({ ...query, max_bytes: MAX_BYTES, ...(this.key ? { key: this.key } : {}), ...(this.decode ? { decode: "schema" } : {}) });
    const answer = await get(`${this.api}/records?${asked}`, this.signal);
    for (const [partition, end] of Object.entries(answer.ends)) this.ends.set(Number(partition), end);
    return answer;
  }
}

// By time; the records of one partition stay in their order even where their times do not.
export function merged(records) {
  const lanes = new Map();
  for (const record of records) {
    if (!lanes.has(record.partition)) lanes.set(record.partition, []);
    lanes.get(record.partition).push(record);
  }
  for (const lane of lanes.values()) lane.sort((a, b) => a.offset - b.offset);
  const heads = [...lanes.values()].map((lane) => ({ lane, next: 0 }));
  const result = [];
  while (result.length < records.length) {
    let first = null;
    for (const head of heads) {
      if (head.next < head.lane.length && (!first || head.lane[head.next].timestamp < first.lane[first.next].timestamp)) first = head;
    }
    result.push(first.lane[first.next++]);
  }
  return result;
}
