/** A run's outputs in order; each has an element of its own, kept while the output lives. */
import { button, fill, h, reconcile, setText } from '../dom.js';
import { altText, choose } from '../model/mime.js';
import { foldTraceback } from '../model/traceback.js';
import { stripAnsi } from '../model/ansi.js';
import { frameOutput } from './frame_output.js';
import { paintText } from './text_lines.js';
import { textOutput } from './text_output.js';
import { StreamText } from '../model/text.js';

/** @typedef {import('../model/outputs.js').Output} Output */
/** @typedef {import('../model/outputs.js').Outputs} Outputs */
/** @typedef {{element: HTMLElement, draw: () => void}} View */

/**
 * @param {import('../app.js').App} app @param {Outputs} outputs @param {string} what for labels
 * @param {(value: string) => void} [answer] @param {() => boolean} [mayAnswer]
 */
export function outputsView(app, outputs, what, answer, mayAnswer = () => false) {
  const element = h('div', { class: 'outputs' });
  /** @type {Map<Output, {view: View, version: number}>} */
  let views = new Map();
  return {
    element,
    /** The record's outputs may take the place of the live ones. @param {Outputs} other */
    swap(other) {
      outputs = other;
    },
    draw() {
      /** @type {typeof views} */
      const next = new Map();
      for (const output of outputs.list) {
        let known = views.get(output);
        if (!known) {
          known = { view: make(app, output, what, answer, mayAnswer), version: -1 };
        }
        if (known.version !== output.version) {
          known.view.draw();
          known.version = output.version;
        }
        next.set(output, known);
      }
      views = next;
      reconcile(element, outputs.list.map((o) => /** @type {{view: View}} */ (next.get(o)).view.element));
    },
  };
}

/**
 * @param {import('../app.js').App} app @param {Output} output @param {string} what
 * @param {((value: string) => void) | undefined} answer @param {() => boolean} mayAnswer @returns {View}
 */
function make(app, output, what, answer, mayAnswer) {
  if (output.kind === 'stream') return textOutput(output.text, output.name);
  if (output.kind === 'error') return errorOutput(output);
  if (output.kind === 'input') return inputOutput(output, answer, mayAnswer);
  return richOutput(app, output, what);
}

/** @param {import('../app.js').App} app @param {import('../model/outputs.js').RichOutput} output @param {string} what @returns {View} */
function richOutput(app, output, what) {
  const element = h('div', { class: 'rich' });
  /** A frame is kept over updates: a new one would flicker. @type {ReturnType<typeof frameOutput> | null} */
  let frame = null;
  return {
    element,
    draw() {
      const choice = choose(output.data);
      if (choice.kind === 'frame') {
        if (!frame) {
          frame = frameOutput(app.me.frame_url, `Table or document made by ${what}`);
          fill(element, frame.element);
        }
        frame.render(choice.mime, choice.data);
        return;
      }
      frame = null;
      if (choice.kind === 'image') fill(element, picture(output, choice));
      else {
        const text = new StreamText();
        text.append(choice.text);
        const view = textOutput(text, 'result');
        view.draw();
        fill(element, choice.kind === 'unsupported' && h('p', { class: 'muted small' }, `Of the kind ${choice.mime}, which this page cannot draw yet; its text stands in for it.`),
          choice.text && view.element);
      }
    },
  };
}

/** @param {import('../model/outputs.js').RichOutput} output @param {{src: string, mime: string}} choice */
function picture(output, choice) {
  const size = output.metadata?.[choice.mime] ?? {};
  const image = h('img', { class: 'picture', alt: altText(output.data, output.metadata, choice.mime), decoding: 'async' });
  // Declared sizes keep the page from jumping; anything but a sane number is left to the picture itself.
  for (const side of /** @type {const} */ (['width', 'height'])) if (size[side] > 0 && size[side] < 20_000) image[side] = size[side];
  image.src = choice.src;
  const name = `picture.${choice.mime.split('/')[1]}`;
  return h('figure', {}, image, h('figcaption', {}, h('a', { href: choice.src, download: name }, 'Save picture')));
}

/** @param {import('../model/outputs.js').ErrorOutput} output @returns {View} */
function errorOutput(output) {
  const { last, full, frames } = foldTraceback(output.traceback);
  const copied = h('span', { class: 'small', role: 'status' });
  const copy = button('Copy traceback', async () => {
    try {
      await navigator.clipboard.writeText(stripAnsi(full));
      setText(copied, 'Copied');
    } catch {
      setText(copied, 'The browser refused; select the text instead');
    }
  }, { class: 'quiet' });
  const headline = h('p', { class: 'error-name' }, h('strong', {}, output.name), output.value ? `: ${stripAnsi(output.value)}` : '');
  const whole = () => h('pre', { class: 'text' }, paintText(full));
  const fold = h('details', {}, h('summary', {}, frames > 1 ? `Full traceback, ${frames} frames` : 'Full traceback'));
  // Painted when asked for: a traceback can be long and is mostly left folded.
  fold.addEventListener('toggle', () => { if (fold.open && fold.childElementCount === 1) fold.append(whole()); });
  const element = h('div', { class: 'error-output' }, headline,
    last ? h('pre', { class: 'text' }, paintText(last)) : null,
    output.traceback.length ? (last || full.length > 2000 ? fold : whole()) : null,
    output.traceback.length > 0 && h('div', { class: 'output-actions' }, copy, copied));
  return { element, draw() {} };
}

/**
 * @param {import('../model/outputs.js').InputOutput} output @param {((value: string) => void) | undefined} answer
 * @param {() => boolean} mayAnswer @returns {View}
 */
function inputOutput(output, answer, mayAnswer) {
  const element = h('div', { class: 'input-output' });
  return {
    element,
    draw() {
      const prompt = output.prompt || 'Input';
      if (output.answered) {
        fill(element, h('pre', { class: 'text' }, prompt + (output.value ?? '')));
        return;
      }
      if (!answer || !mayAnswer()) {
        fill(element, h('p', { class: 'muted' }, `Waits for an answer in the client that started it: ${prompt}`));
        return;
      }
      const field = h('input', { type: output.password ? 'password' : 'text', autocomplete: 'off', 'aria-label': prompt });
      fill(element, h('form', { on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); answer(field.value); } } },
        h('span', { class: 'prompt' }, prompt), field, h('button', { type: 'submit', class: 'primary' }, 'Answer')));
    },
  };
}
