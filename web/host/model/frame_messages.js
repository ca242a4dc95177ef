/**
 * What page and frame may say to each other: two closed unions, checked by the receiver. Pure.
 *
 * @typedef {{type: 'render', mime: 'text/html' | 'image/svg+xml', data: string}
 *   | {type: 'theme', dark: boolean, reducedMotion: boolean}} ToFrame
 * @typedef {{type: 'ready'} | {type: 'height', height: number} | {type: 'error', message: string}} FromFrame
 */

/**
 * What the frame shows is hostile until shown otherwise, and shares the frame with our own script: every field is checked, and
 * nothing outside the union passes.
 * @param {unknown} value @returns {value is FromFrame}
 */
export function isFromFrame(value) {
  if (typeof value !== 'object' || value === null) return false;
  const message = /** @type {Record<string, unknown>} */ (value);
  const keys = Object.keys(message).length;
  if (message.type === 'ready') return keys === 1;
  if (message.type === 'height') return keys === 2 && typeof message.height === 'number' && message.height >= 0 && message.height < 1e6;
  if (message.type === 'error') return keys === 2 && typeof message.message === 'string' && message.message.length <= 500;
  return false;
}
