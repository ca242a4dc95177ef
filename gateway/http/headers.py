"""Security headers: what every response carries, and the policies of the page and of the output frame."""

from __future__ import annotations

import re
from collections.abc import Iterable

SECURITY_HEADERS: dict[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}
"""For JSON answers: a browser that is led to one renders nothing."""

DOWNLOAD_CSP = "sandbox; default-src 'none'; frame-ancestors 'none'"

_ORIGIN = re.compile(r"^https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$")


def is_origin(text: str) -> bool:
    """True for ``scheme://host[:port]`` of http(s), which is safe to put into a policy or to compare."""
    return _ORIGIN.match(text) is not None


def page_csp(frame_origin: str) -> str:
    """The page loads only its own files and frames only the output frame, so a frame cannot lead itself elsewhere."""
    frames = frame_origin or "'none'"
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"font-src 'self'; connect-src 'self'; frame-src {frames}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def frame_headers(frame_origin: str, host_origins: Iterable[str]) -> dict[str, str]:
    """For everything that the frame's server answers: an opaque origin, no network, shown only inside the page.

    Only the frame's own script runs, never one of an output: WebRTC and navigation reach the network in spite of every
    policy. ``frame_origin`` stands where ``'self'`` would, which need not match anything in a sandboxed document.
    """
    ancestors = " ".join(origin for origin in host_origins if is_origin(origin)) or "'none'"
    csp = (
        "sandbox allow-scripts; default-src 'none'; "
        f"script-src {frame_origin}; style-src {frame_origin} 'unsafe-inline'; img-src data: blob:; font-src data:; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
    )
    return {
        "Content-Security-Policy": csp,
        "X-Content-Type-Options": "nosniff",
        "X-DNS-Prefetch-Control": "off",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "cross-origin",
        # A sandboxed document has origin "null", and module scripts and fonts are fetched with CORS.
        "Access-Control-Allow-Origin": "*",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=(), usb=(), serial=(), clipboard-read=()",
    }
