"""HTTP requests over an unreliable network, with transient failures distinguished from permanent ones.

`Web.get` raises `TroubleError` for transient failures (a cut or stalled connection, too many requests, a failing server) and
`RefusedError` for permanent ones. `Patience` backs off exponentially, or for as long as the server asks, and gives up after
`TRIES` without progress. Proxies and certificate bundles are those of the environment (HTTPS_PROXY, NO_PROXY,
SSL_CERT_FILE); certificates are always verified.
"""

import ssl
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urljoin

import httpx2
from huggingface_hub import constants, get_token

from bertprep import __version__
from bertprep.errors import BertprepError
from bertprep.patience import PASSING, TRIES, first_wait_seconds, silence_seconds, wait_seconds
from bertprep.progress import SILENT, Reporter
from bertprep.untrusted import MOST_BYTES, parse_json

TRIES_TO_LIST = 6
"""Fewer for a listing, so that a missing network is reported soon: after 31 s."""
_LONGEST_RETRY_AFTER = 300
"""In units of the first wait, however long the server asks for."""

Result = TypeVar("Result")


class TroubleError(Exception):
    """A transient failure; `after_seconds` is the wait that the server asked for."""

    def __init__(self, message: str, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class RefusedError(BertprepError):
    """A permanent failure; `code` is the Hub's name for it."""

    def __init__(self, message: str, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Web:
    """Makes requests; thread-safe. The Hub's token is sent only to the Hub's endpoint."""

    def __init__(self, connections: int = 1) -> None:
        try:
            self._client = httpx2.Client(
                timeout=silence_seconds(),
                follow_redirects=True,  # to another host without the Authorization header
                limits=httpx2.Limits(max_connections=connections),
                # no compression in transit: sizes and ranges are those of the files
                headers={"Accept-Encoding": "identity", "User-Agent": f"bertprep/{__version__}"},
            )
        except (httpx2.InvalidURL, ValueError, OSError) as error:
            raise BertprepError(
                f"the environment's proxy or certificates cannot be used ({error}); check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, "
                "SSL_CERT_FILE and SSL_CERT_DIR"
            ) from error
        token = get_token()
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}

    def __enter__(self) -> "Web":
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def get_json(self, url: str) -> tuple[Any, str | None]:
        """The JSON at an address, and the address of the next page; raises `ValueError` for anything else."""
        with self.get(url) as response:
            data = bytearray()
            for block in response.iter_raw():  # raw: it was requested without compression
                data += block
                if len(data) > MOST_BYTES:
                    raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            following = response.links.get("next", {}).get("url")
            return parse_json(bytes(data)), following and urljoin(str(response.url), following)

    @contextmanager
    def get(
        self, url: str, headers: dict[str, str] | None = None, *, method: str = "GET", expect: Container[int] = ()
    ) -> Iterator[httpx2.Response]:
        """One request; its body is read inside the `with`. Error statuses raise, except those in `expect`."""
        url = absolute(url)
        if constants.is_offline_mode():
            raise BertprepError(f"{url}: is needed, and HF_HUB_OFFLINE forbids any request; unset it")
        authorization = self._authorization if url.startswith(absolute("")) else {}
        try:
            with self._client.stream(method, url, headers={**authorization, **(headers or {})}) as response:
                if response.status_code >= HTTPStatus.BAD_REQUEST and response.status_code not in expect:
                    raise _explain_answer(url, response)
                yield response
        except httpx2.TransportError as error:
            raise explain_failure(url, error) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise BertprepError(f"{url}: cannot be fetched ({error}); check the address") from error


class Patience:
    """Counts the tries without progress, and waits before the next."""

    def __init__(
        self,
        what: str,
        *,
        tries: int = TRIES,
        stop: threading.Event | None = None,
        reporter: Reporter = SILENT,
        kept: str = "received bytes are kept",
    ) -> None:
        self._what, self._allowed, self._reporter, self._kept = what, tries, reporter, kept
        self._stop = stop or threading.Event()
        self._tries = self._best = 0

    def note_progress(self, reached: int) -> None:
        """Reset the count only on a new maximum, so that repeated progress and loss come to an end."""
        if reached > self._best:
            self._best, self._tries = reached, 0

    def wait(self, trouble: TroubleError) -> None:
        """Wait before the next try; raises `BertprepError` after too many."""
        self._tries += 1
        if self._tries >= self._allowed:
            raise BertprepError(
                f"{self._what}: {trouble}; given up after {self._allowed} tries without progress; "
                f"{self._kept}, the same command resumes"
            )
        seconds = wait_seconds(self._tries)
        if trouble.after_seconds is not None:
            seconds = min(max(seconds, trouble.after_seconds), _LONGEST_RETRY_AFTER * first_wait_seconds())
        self._reporter.say(
            f"{self._what}: {trouble}; trying again in {seconds:.0f} s (try {self._tries + 1} of {self._allowed})"
        )
        self._stop.wait(seconds)

    def persist(self, action: Callable[[], Result]) -> Result:
        """The result of `action`, retried until it succeeds."""
        while True:
            try:
                return action()
            except TroubleError as trouble:
                self.wait(trouble)


def absolute(url: str) -> str:
    """The full address; one without a scheme is relative to the Hub's endpoint.

    >>> absolute("https://dumps.wikimedia.org/")
    'https://dumps.wikimedia.org/'
    """
    return url if "://" in url else f"{constants.ENDPOINT.rstrip('/')}/{url}"


def _explain_answer(url: str, response: httpx2.Response) -> TroubleError | RefusedError:
    status = response.status_code
    answer = f"the server answers {status} {response.reason_phrase}".rstrip()
    # a redirect to a store is signed for a limited time; after that, asking the first server again gives a new one
    expired = status == HTTPStatus.FORBIDDEN and bool(response.history)
    if status in PASSING or expired:
        return TroubleError(answer, retry_after_seconds(response.headers.get("Retry-After", "")))
    advice = "check the address, or try again later"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        advice = "accept the conditions on its page if it has some, and set HF_TOKEN to a token of an account that may read it"
    elif status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        advice = "give the proxy's user and password in HTTPS_PROXY"
    return RefusedError(f"{url}: {answer}; {advice}", status, response.headers.get("X-Error-Code", ""))


def explain_failure(url: str, error: httpx2.TransportError) -> TroubleError | BertprepError:
    """What to raise where there was no answer."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return BertprepError(
                f"{url}: the server's certificate is not trusted ({cause.verify_message}); behind a proxy that puts its own "
                "in place, set SSL_CERT_FILE to a file with that proxy's certificate"
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.UnsupportedProtocol):
        return BertprepError(f"{url}: cannot be fetched ({error}); give an http or https address")
    host = httpx2.URL(url).netloc.decode()
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return TroubleError(f"{host} cannot be reached ({str(error) or 'no answer'})")
    if isinstance(error, httpx2.TimeoutException):
        return TroubleError(f"{host} went silent")
    return TroubleError(f"the connection to {host} broke ({str(error) or type(error).__name__})")


def retry_after_seconds(text: str) -> float | None:
    """The seconds of a Retry-After header, which holds a number or a date.

    >>> retry_after_seconds("120")
    120.0
    """
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
