// Verify Ed25519 signatures (RFC 8032, 5.1.7) with BigInt. It is slow and not constant-time, which
// is safe because verifying uses no secret.

const P = 2n ** 255n - 19n;
const L = 2n ** 252n + 27742317777372353535851937790883648493n;

const mod = (x, m = P) => ((x % m) + m) % m;

const power = (base, exponent) => {
  let result = 1n;
  let square = mod(base);
  for (let e = exponent; e > 0n; e >>= 1n) {
    if (e & 1n) result = mod(result * square);
    square = mod(square * square);
  }
  return result;
};

const D = mod(-121665n * power(121666n, P - 2n));
const ROOT_OF_MINUS_ONE = power(2n, (P - 1n) / 4n);

const littleEndian = (bytes) =>
  bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);

// Points in extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
const addPoints = ([x1, y1, z1, t1], [x2, y2, z2, t2]) => {
  const a = mod((y1 - x1) * (y2 - x2));
  const b = mod((y1 + x1) * (y2 + x2));
  const c = mod(2n * t1 * t2 * D);
  const d = mod(2n * z1 * z2);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
};

const multiplied = (point, scalar) => {
  let result = [0n, 1n, 1n, 0n];
  let double = point;
  for (let s = scalar; s > 0n; s >>= 1n) {
    if (s & 1n) result = addPoints(result, double);
    double = addPoints(double, double);
  }
  return result;
};

const samePoint = ([x1, y1, z1], [x2, y2, z2]) =>
  mod(x1 * z2 - x2 * z1) === 0n && mod(y1 * z2 - y2 * z1) === 0n;

// Decode a point from 32 bytes; null if they are not its canonical encoding.
const pointOf = (bytes) => {
  const encoded = littleEndian(bytes);
  const sign = encoded >> 255n;
  const y = encoded & (2n ** 255n - 1n);
  if (y >= P) return null;
  const square = mod((y * y - 1n) * power(D * y * y + 1n, P - 2n));
  let x = power(square, (P + 3n) / 8n);
  if (mod(x * x - square) !== 0n) x = mod(x * ROOT_OF_MINUS_ONE);
  if (mod(x * x - square) !== 0n) return null;
  if (x === 0n && sign === 1n) return null;
  if ((x & 1n) !== sign) x = P - x;
  return [x, y, 1n, mod(x * y)];
};

const baseBytes = new Uint8Array(32).fill(0x66);
baseBytes[0] = 0x58;
const BASE = pointOf(baseBytes);

const joined = (...parts) => {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
};

// Return true if the key signed `message`; strict about every encoding.
const isSignedBy = (publicKey, signature, message) => {
  if (publicKey.length !== 32 || signature.length !== 64) return false;
  const key = pointOf(publicKey);
  const first = pointOf(signature.slice(0, 32));
  const scalar = littleEndian(signature.slice(32));
  if (key === null || first === null || scalar >= L) return false;
  const hash = littleEndian(sha512(joined(signature.slice(0, 32), publicKey, message))) % L;
  return samePoint(multiplied(BASE, scalar), addPoints(first, multiplied(key, hash)));
};
