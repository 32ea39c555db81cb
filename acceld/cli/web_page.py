"""Write the page of ``acceld web``. The page loads nothing from other machines, and its Content-Security-Policy forbids
the browser to do so.
"""

from __future__ import annotations

from string import Template


def policy(host: str, nonce: str) -> str:
    """Return the Content-Security-Policy for every answer. The policy allows only this server's files and its socket."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}'",
            "style-src 'self' 'unsafe-inline'",  # the terminal in the page colors its cells by inline styles
            "font-src 'self'",
            "img-src 'self' data:",
            f"connect-src 'self' ws://{host}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def page(host: str, font_size: int, nonce: str) -> str:
    """Return the page's HTML for a browser that reached this server as ``host``."""
    return _PAGE.substitute(host=host, font_size=font_size, nonce=nonce)


# The script of textual-serve drops keys that are pressed before its socket is open, and the UI drops keys that arrive
# before it has drawn its first frame. So the page keeps the keys until then.
_PAGE = Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>acceld</title>
<link rel="stylesheet" href="/static/css/xterm.css">
<style>
@font-face { font-family: "Roboto Mono"; src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf"); font-weight: 100 700; }
html, body { margin: 0; height: 100%; background: #16181d; color: #d8d6d0; font-family: "Roboto Mono", monospace; }
#terminal { width: 100vw; height: 100vh; }
.said { display: none; position: absolute; inset: 0; z-index: 10; align-items: center; justify-content: center; gap: 2ch;
  background: #16181d; }
body:not(.-first-byte) .opening, body.-closed .closed { display: flex; }
.said a { color: inherit; }
</style>
<script nonce="$nonce">
(() => {
  const named = { Enter: "\\r", Escape: "\\u001b", Tab: "\\t", Backspace: "\\u007f", ArrowUp: "\\u001b[A",
    ArrowDown: "\\u001b[B", ArrowRight: "\\u001b[C", ArrowLeft: "\\u001b[D" };
  const typed = [];
  let ready = false;
  addEventListener("keydown", (event) => {
    if (ready || event.ctrlKey || event.metaKey || event.altKey) return;
    const text = event.key.length === 1 ? event.key : named[event.key];
    if (text === undefined) return;
    typed.push(text);
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  const Plain = WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...where) {
      super(...where);
      this.addEventListener("message", () => {
        if (ready) return;
        ready = true;
        for (const text of typed) this.send(JSON.stringify(["stdin", text]));
      });
    }
  };
})();
</script>
<script src="/static/js/textual.js"></script>
</head>
<body>
<div class="said opening">acceld opens</div>
<div class="said closed"><span>You have left. The daemon keeps running.</span> <a href="/">open again</a></div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="ws://$host/ws" data-font-size="$font_size"></div>
</body>
</html>
"""
)
