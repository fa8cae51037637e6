// Frames of a camera or a video, one request at a time.

const LARGEST_SIDE = 1280; // of a frame that is sent
const QUALITY = 0.85;

export async function openCamera(video, signal) {
  if (!navigator.mediaDevices?.getUserMedia)
    throw new Error("Browsers open a camera only for pages at https:// or localhost.");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    const refused = error.name === "NotAllowedError";
    throw new Error(refused ? "The browser may not use the camera: allow it in the address bar." : "No camera was found.");
  }
  if (signal.aborted) { // while the browser asked
    for (const track of stream.getTracks()) track.stop();
    return;
  }
  video.srcObject = stream;
  video.controls = false;
  await video.play();
}

export async function openVideo(video, file) {
  video.srcObject = null;
  video.src = URL.createObjectURL(file);
  video.controls = true;
  video.loop = true;
  await video.play().catch(() => {
    throw new Error(`${file.name}: the browser cannot play this video. Run: engine detect FILE, or engine serve --source FILE`);
  });
}

export function close(video) {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  if (video.src) URL.revokeObjectURL(video.src);
  video.removeAttribute("src");
  video.load();
}

// Calls `onFrame` with one frame after the other, and its time in a video, until the signal aborts.
export async function follow(video, signal, onFrame) {
  const canvas = document.createElement("canvas");
  let seen = -1;
  while (!signal.aborted) {
    const isSame = !video.srcObject && video.currentTime === seen;
    if (document.hidden || !video.videoWidth || isSame) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      continue;
    }
    seen = video.currentTime;
    const scale = Math.min(1, LARGEST_SIDE / Math.max(video.videoWidth, video.videoHeight));
    canvas.width = Math.round(video.videoWidth * scale);
    canvas.height = Math.round(video.videoHeight * scale);
    canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
    const frame = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", QUALITY));
    await onFrame(frame, video.srcObject ? undefined : seen);
  }
}
