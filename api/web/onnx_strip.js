/**
 * An ONNX file without its weights: what the service needs of a CNN is its graph and its shapes.
 * Called by upload.js; calls nothing. Works on the protobuf wire format: every field that it does not know is copied as
 * it is. A tensor of more than KEPT_NUMBERS numbers loses its data and is marked as kept elsewhere (data_location
 * EXTERNAL), which readers of shapes understand; smaller ones, such as the shape of a Reshape, stay whole.
 */

/** Numbers that a tensor may hold and still be sent: the service computes with those and with no larger ones. */
export const KEPT_NUMBERS = 1024;

const DIMS = 1;
const DATA = new Set([4, 5, 6, 7, 9, 10, 11, 13, 14]); // every kind of data, where it lies, data_location
const MARK = Uint8Array.of(0x70, 0x01); // data_location: EXTERNAL
const LENGTH = 2;

/** Messages that hold tensors, by field number: what each field is. */
const MESSAGES = {
  model: { 7: "graph", 25: "function" },
  graph: { 1: "node", 5: "tensor" },
  function: { 7: "node" },
  node: { 5: "attribute" },
  attribute: { 5: "tensor", 6: "graph", 10: "tensor", 11: "graph" },
};

/**
 * Drop the weights of an ONNX file.
 * @param {Uint8Array} file
 * @returns {Blob}
 * @throws {RangeError} where the file is no protobuf message
 */
export function withoutWeights(file) {
  return new Blob(rewritten(file, "model").pieces);
}

/** @returns {{pieces: Uint8Array[], size: number}} a message with its tensors made small */
function rewritten(bytes, kind) {
  if (kind === "tensor") return smallTensor(bytes);
  const made = { pieces: [], size: 0 };
  for (const field of fieldsOf(bytes)) {
    const inner = MESSAGES[kind][field.number];
    if (!inner || field.wire !== LENGTH) {
      add(made, bytes.subarray(field.start, field.end));
      continue;
    }
    const message = rewritten(bytes.subarray(field.content, field.end), inner);
    add(made, varint(field.number * 8 + LENGTH));
    add(made, varint(message.size));
    made.pieces.push(...message.pieces);
    made.size += message.size;
  }
  return made;
}

function smallTensor(bytes) {
  const fields = [...fieldsOf(bytes)];
  const numbers = fields.filter((field) => field.number === DIMS).flatMap((field) => dimsOf(bytes, field));
  if (numbers.reduce((product, each) => product * each, 1) <= KEPT_NUMBERS) {
    return { pieces: [bytes], size: bytes.length };
  }
  const made = { pieces: [], size: 0 };
  for (const field of fields) if (!DATA.has(field.number)) add(made, bytes.subarray(field.start, field.end));
  add(made, MARK);
  return made;
}

function dimsOf(bytes, field) {
  if (field.wire === 0) return [field.value];
  const found = [];
  for (let at = field.content; at < field.end; ) {
    const [value, next] = readVarint(bytes, at);
    found.push(value);
    at = next;
  }
  return found;
}

function add(made, piece) {
  made.pieces.push(piece);
  made.size += piece.length;
}

/** The fields of a message, one after the other: number, wire type, and where field and content lie. */
function* fieldsOf(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const start = at;
    let key, value, content;
    [key, content] = readVarint(bytes, at);
    const [number, wire] = [Math.floor(key / 8), key % 8];
    if (wire === 0) [value, at] = readVarint(bytes, content);
    else if (wire === 1) at = content + 8;
    else if (wire === LENGTH) {
      [value, content] = readVarint(bytes, content);
      at = content + value;
    } else if (wire === 5) at = content + 4;
    else throw new RangeError(`wire type ${wire} at byte ${start}`);
    if (at > bytes.length || number === 0) throw new RangeError(`cut short at byte ${start}`);
    yield { number, wire, value, start, content, end: at };
  }
}

function readVarint(bytes, from) {
  let value = 0;
  for (let i = 0; i < 10; i++) {
    const byte = bytes[from + i];
    if (byte === undefined) throw new RangeError(`cut short at byte ${from}`);
    value += (byte & 127) * 2 ** (7 * i);
    if (byte < 128) return [value, from + i + 1];
  }
  throw new RangeError(`a number of more than ten bytes at byte ${from}`);
}

function varint(value) {
  const bytes = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  bytes.push(value);
  return Uint8Array.from(bytes);
}
