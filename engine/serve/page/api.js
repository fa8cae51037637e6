// Requests to this server, with its token where it asks for one.

const KEY = "engine-token";
const IN_A_HEADER = /^[\x20-\x7e]+$/; // fetch() refuses other characters

export class ServerError extends Error {
  constructor(status, message, seconds) {
    super(message);
    this.status = status;
    this.seconds = seconds; // to wait before the next try
  }
}

export async function request(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    if (token && !IN_A_HEADER.test(token)) {
      await askForToken(token);
      continue;
    }
    const headers = { ...options.headers };
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(0, "The server does not respond. Is it still running?");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      await askForToken(token);
      continue;
    }
    const seconds = Number(response.headers.get("Retry-After")) || 0;
    const text = await response.json().then((found) => found.error, () => response.statusText);
    throw new ServerError(response.status, text, seconds);
  }
}

// Several requests may be refused at once; they share one question.
let question = null;

function askForToken(refused) {
  if (sessionStorage.getItem(KEY) !== refused) return Promise.resolve(); // another request asked
  question ??= new Promise((resolve) => {
    const dialog = document.getElementById("ask");
    const input = document.getElementById("token");
    const showAgain = () => dialog.showModal(); // Escape closes it without a token
    input.value = "";
    document.getElementById("refused").hidden = refused === null;
    dialog.addEventListener("close", showAgain);
    document.getElementById("ask-form").addEventListener("submit", () => {
      sessionStorage.setItem(KEY, input.value);
      dialog.removeEventListener("close", showAgain);
      question = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return question;
}
