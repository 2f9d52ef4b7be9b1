// SHA-256 and SHA-512 (FIPS 180-4) over Uint8Array, because a page opened from a file
// may have no crypto.subtle. Nothing here is secret.

const primesUpTo = (count) => {
  const found = [];
  for (let n = 2; found.length < count; n++) {
    if (found.every((prime) => n % prime !== 0)) found.push(n);
  }
  return found;
};

// The first 64 bits of the fraction of the cube root (or square root) of n, with BigInt.
const rootFraction = (n, degree) => {
  const target = BigInt(n) << BigInt(64 * degree);
  let low = 0n;
  let high = BigInt(n + 1) << 64n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (middle ** BigInt(degree) <= target) low = middle;
    else high = middle;
  }
  return low & 0xffffffffffffffffn;
};

const K512 = primesUpTo(80).map((prime) => rootFraction(prime, 3));
const H512 = primesUpTo(8).map((prime) => rootFraction(prime, 2));
const K256 = Int32Array.from(K512.slice(0, 64), (k) => Number(k >> 32n) | 0);
const H256 = H512.map((h) => Number(h >> 32n) | 0);

// The message with its padding: 0x80, zeros, its length in bits in the last bytes.
const padded = (message, block) => {
  const size = Math.ceil((message.length + 1 + block / 8) / block) * block;
  const out = new Uint8Array(size);
  out.set(message);
  out[message.length] = 0x80;
  const view = new DataView(out.buffer);
  view.setUint32(size - 4, (message.length * 8) >>> 0);
  view.setUint32(size - 8, Math.floor(message.length / 0x20000000));
  return view;
};

const W256 = new Int32Array(64);

// Process a block of 64 bytes without allocating an array: a ledger has millions of blocks.
const compress256 = (state, view, at) => {
  const w = W256;
  for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15];
    const y = w[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  let e = state[4];
  let f = state[5];
  let g = state[6];
  let h = state[7];
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K256[i] + w[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
};

const sha256 = (message) => {
  const view = padded(message, 64);
  const state = Int32Array.from(H256);
  for (let at = 0; at < view.byteLength; at += 64) compress256(state, view, at);
  const out = new DataView(new ArrayBuffer(32));
  for (let i = 0; i < 8; i++) out.setInt32(4 * i, state[i]);
  return new Uint8Array(out.buffer);
};

const rotated = (x, by) => BigInt.asUintN(64, (x >> by) | (x << (64n - by)));

const sha512 = (message) => {
  const view = padded(message, 128);
  const state = [...H512];
  const w = new Array(80);
  const add = (...words) => BigInt.asUintN(64, words.reduce((sum, word) => sum + word, 0n));
  for (let at = 0; at < view.byteLength; at += 128) {
    for (let i = 0; i < 16; i++) w[i] = view.getBigUint64(at + 8 * i);
    for (let i = 16; i < 80; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = rotated(x, 1n) ^ rotated(x, 8n) ^ (x >> 7n);
      const s1 = rotated(y, 19n) ^ rotated(y, 61n) ^ (y >> 6n);
      w[i] = add(w[i - 16], s0, w[i - 7], s1);
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 80; i++) {
      const s1 = rotated(e, 14n) ^ rotated(e, 18n) ^ rotated(e, 41n);
      const t1 = add(h, s1, (e & f) ^ (BigInt.asUintN(64, ~e) & g), K512[i], w[i]);
      const s0 = rotated(a, 28n) ^ rotated(a, 34n) ^ rotated(a, 39n);
      const t2 = add(s0, (a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, add(d, t1), c, b, a, add(t1, t2)];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => {
      state[i] = add(state[i], word);
    });
  }
  const out = new DataView(new ArrayBuffer(64));
  state.forEach((word, i) => out.setBigUint64(8 * i, word));
  return new Uint8Array(out.buffer);
};
