/**
 * Markup made by code, shown in a sandboxed frame of another origin. The frame gets one message port and two kinds of message;
 * whatever else it sends is ignored. It is made when it comes near the screen: fifty tables need not be fifty frames at once.
 */
import { button, h, setText } from '../dom.js';
import { isFromFrame } from '../model/frame_messages.js';

/** @typedef {import('../model/frame_messages.js').ToFrame} ToFrame */

/** A frame grows with its content up to here; beyond, it scrolls until the reader asks for all of it. */
const CAP_PX = 560;
const FULL_CAP_PX = 20_000;
const CONNECTS = 20;

/** @param {string} frameUrl @param {string} label */
export function frameOutput(frameUrl, label) {
  const problem = h('p', { class: 'muted small', role: 'status' });
  const more = button('Show all of it', () => {
    cap = FULL_CAP_PX;
    more.hidden = true;
    resize();
  }, { hidden: true });
  const frame = h('iframe', { class: 'output-frame', title: label, referrerPolicy: 'no-referrer' });
  // Scripts may run (the frame's own must); its origin is opaque, so it has no cookies, no storage and no way to this page.
  frame.setAttribute('sandbox', 'allow-scripts');
  const element = h('div', { class: 'frame-box' }, frame, more, problem);
  let cap = CAP_PX;
  let height = 0;
  /** @type {MessagePort | null} */
  let port = null;
  let ready = false;
  let connects = 0;
  /** @type {ToFrame | null} */
  let content = null;

  let pending = false;
  const resize = () => {
    pending = false;
    frame.style.height = `${Math.min(height, cap)}px`;
    more.hidden = height <= cap || cap === FULL_CAP_PX;
  };
  /** @param {ToFrame} message */
  const send = (message) => {
    if (ready) port?.postMessage(message);
  };
  const theme = () => send({ type: 'theme', dark: matchMedia('(prefers-color-scheme: dark)').matches, reducedMotion: matchMedia('(prefers-reduced-motion: reduce)').matches });

  /** @param {MessageEvent} event */
  const receive = ({ data }) => {
    if (!isFromFrame(data)) return;
    if (data.type === 'ready') {
      ready = true;
      theme();
      if (content) send(content);
    } else if (data.type === 'height') {
      const next = Math.ceil(data.height);
      if (next === height) return;
      height = next;
      if (!pending) requestAnimationFrame(resize);
      pending = true;
    } else setText(problem, `The output could not be shown: ${data.message}`);
  };
  const connect = () => {
    // A frame that is moved in the page loads again and is connected again; one that reloads itself for ever is left alone.
    if (!frame.contentWindow || connects++ >= CONNECTS) return;
    port?.close();
    ready = false;
    const channel = new MessageChannel();
    port = channel.port1;
    port.onmessage = receive;
    // The frame's origin is opaque, so no narrower target can be named.
    frame.contentWindow.postMessage({ type: 'connect' }, '*', [channel.port2]);
  };
  whenNear(frame, () => {
    // Not before: the empty document that an iframe starts with has a load event too.
    frame.addEventListener('load', connect);
    frame.src = frameUrl;
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', theme);
  return {
    element,
    /** @param {'text/html' | 'image/svg+xml'} mime @param {string} data */
    render(mime, data) {
      content = { type: 'render', mime, data };
      send(content);
    },
  };
}

/** @type {IntersectionObserver | null} */
let observer = null;
/** @type {WeakMap<Element, () => void>} */
const waiting = new WeakMap();

/** @param {Element} element @param {() => void} then */
function whenNear(element, then) {
  observer ??= new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      observer?.unobserve(entry.target);
      waiting.get(entry.target)?.();
      waiting.delete(entry.target);
    }
  }, { rootMargin: '800px' });
  waiting.set(element, then);
  observer.observe(element);
}
