// Search runs in a worker, which browsers refuse to pages opened from a disk: there, it runs in a hidden frame.
// Material for MkDocs looks for the name IFrameWorker; its own version of this file would be loaded from the web.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.worker = this
      frame.srcdoc =
        "<script>postMessage = data => " +
        "frameElement.worker.dispatchEvent(new MessageEvent('message', {data}))</script>" +
        `<script src="${new URL(url, location)}"></script>`
      this.ready = new Promise(resolve => frame.addEventListener("load", () => resolve(frame.contentWindow)))
      document.body.append(frame)
    }

    postMessage(data) {
      this.ready.then(frame => frame.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
}
