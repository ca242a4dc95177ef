/** What a session's sandbox used since the admin looks on: memory and processor, a line each, and the same in words. */
import { h, setAttr, setText } from '../../dom.js';
import { elapsedText } from '../../model/clock.js';
import { linePath } from '../../model/use.js';
import { sizeText } from '../../model/words.js';

/** @typedef {import('../../model/use.js').Use} Use */

const WIDTH = 240;
const HEIGHT = 48;
const SVG = 'http://www.w3.org/2000/svg';
const cpuText = (/** @type {number} */ processors) => `${Math.round(processors * 100)} %`;

export function useCharts() {
  const memory = chart('Memory', sizeText);
  const cpu = chart('CPU', cpuText);
  const element = h('div', { class: 'use', hidden: true }, memory.element, cpu.element);
  return {
    element,
    /** @param {Use[]} points */
    draw(points) {
      element.hidden = points.length < 2;
      if (element.hidden) return;
      memory.draw(points.map((p) => [p.at, p.memory]));
      cpu.draw(points.flatMap((p) => (p.cpu === null ? [] : [[p.at, p.cpu]])));
    },
  };
}

/** @param {string} name @param {(value: number) => string} text */
function chart(name, text) {
  const line = document.createElementNS(SVG, 'path');
  const picture = document.createElementNS(SVG, 'svg');
  for (const [key, value] of Object.entries({ viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: 'none', role: 'img' })) picture.setAttribute(key, value);
  picture.append(line);
  const said = h('figcaption', {});
  return {
    element: h('figure', {}, said, picture),
    /** @param {[number, number][]} points */
    draw(points) {
      const values = points.map(([, value]) => value);
      const most = Math.max(...values);
      const now = values.at(-1) ?? 0;
      setText(said, `${name}: ${text(now)} now, ${text(most)} at the most`);
      setAttr(line, 'd', linePath(points, most * 1.1, WIDTH, HEIGHT));
      const since = elapsedText((points.at(-1)?.[0] ?? 0) - (points[0]?.[0] ?? 0));
      setAttr(picture, 'aria-label', `${name} over the last ${since}: from ${text(values[0] ?? 0)} to ${text(now)}, at the most ${text(most)}`);
    },
  };
}
