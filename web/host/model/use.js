/**
 * What sandboxes used over time, as far as an admin has looked on. Pure.
 *
 * @typedef {{at: number, memory: number, cpu: number | null}} Use `at`: milliseconds; `memory`: bytes; `cpu`: processors in use since the point before
 */

/** 20 minutes at a look each 5 seconds. */
const MOST_POINTS = 240;
/** Of a session that is not looked at any more (another filter, ended) nothing is kept for longer. */
const FORGET_MS = 30 * 60_000;

export class UseHistory {
  /** @type {Map<string, {sandbox: string, cpu_s: number, points: Use[]}>} */
  #known = new Map();

  /** @param {import('../types.js').Session[]} sessions */
  add(sessions) {
    let newest = 0;
    for (const s of sessions) {
      const { memory_bytes, cpu_s, as_of } = s.resources ?? {};
      const at = Date.parse(as_of ?? '');
      if (memory_bytes === undefined || cpu_s === undefined || !Number.isFinite(at)) continue;
      newest = Math.max(newest, at);
      let known = this.#known.get(s.session_id);
      if (!known || known.sandbox !== s.sandbox_id) this.#known.set(s.session_id, (known = { sandbox: s.sandbox_id ?? '', cpu_s: NaN, points: [] }));
      const last = known.points.at(-1);
      if (last && at <= last.at) continue;
      const cpu = last ? Math.max(0, (cpu_s - known.cpu_s) / ((at - last.at) / 1000)) : null;
      known.cpu_s = cpu_s;
      known.points.push({ at, memory: memory_bytes, cpu });
      if (known.points.length > MOST_POINTS) known.points.shift();
    }
    for (const [id, { points }] of this.#known) if ((points.at(-1)?.at ?? 0) < newest - FORGET_MS) this.#known.delete(id);
  }

  /** Of its present sandbox, oldest first. @param {string} id @returns {Use[]} */
  of(id) {
    return this.#known.get(id)?.points ?? [];
  }
}

/**
 * A line through the values, as the `d` of an SVG path `width` by `height`; the most there may be (`top`) is at its upper edge.
 * @param {[number, number][]} points time and value, oldest first @param {number} top @param {number} width @param {number} height
 */
export function linePath(points, top, width, height) {
  const first = points[0];
  const last = points.at(-1);
  if (!first || !last || last[0] <= first[0]) return '';
  const span = last[0] - first[0];
  return points.map(([at, value], i) => {
    const y = height - (Math.min(value, top) / (top || 1)) * height;
    return `${i ? 'L' : 'M'}${(((at - first[0]) / span) * width).toFixed(1)} ${y.toFixed(1)}`;
  }).join(' ');
}
