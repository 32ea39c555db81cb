"""Define the errors of model calls.

::

    LLMError                          exit code 1; ``outcome`` is what the ledger stores
     ├─ LLMRateLimited                429: wait, then try again
     ├─ LLMUnavailable                no connection, 408, 409, 5xx: wait, then try again
     │   └─ LLMCircuitOpen            the model failed so often that it is left alone for a while
     ├─ LLMTimedOut               124 one of the four deadlines passed; ``deadline`` names it
     ├─ LLMInterrupted                the stream broke off after visible output
     ├─ LLMRefused                4   401, 403 or no key at all
     ├─ LLMQuotaExceeded          4   the account has no credit or its own spending limit is reached
     ├─ LLMBadRequest                 400, 404, 413, 422: the same request would fail again
     │   ├─ LLMUnknownModel           the endpoint does not serve this model
     │   ├─ LLMUnsupportedParameter   a setting the endpoint does not know; ``parameter`` names it
     │   └─ LLMContextTooLong         the prompt does not fit
     ├─ LLMContentFiltered            the provider withheld the answer
     └─ LLMEmpty                      an answer without text, or bytes that are no answer

``retryable`` says whether the same request may be sent again; nothing is sent again once an answer has begun. Provider
modules translate their SDK's exceptions into these errors by one table each. No module above them handles an SDK's
exceptions.
"""

from __future__ import annotations

from typing import Literal

from acceld.errors import AcceldError, CredentialError, DeadlineError
from acceld.model_calls import Usage

Deadline = Literal["connect_s", "first_token_s", "idle_s", "total_s"]
"""The four deadlines of one call: for the connection, the first streamed event, the next event, and the whole answer.
"""


class LLMError(AcceldError):
    """Raised when a model's answer did not arrive, or can not be used."""

    retryable = False
    outcome = "failed"
    lasting = False
    """True if further calls of the role would fail too, until a person has mended the cause."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        partial: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.partial = partial
        """Visible text that had arrived. The text is stored with the call, because it may be billed."""
        self.usage: Usage | None = None
        """Tokens that the provider reported before the failure."""
        self.started = bool(partial)
        """True once the answer, or its reasoning, had begun. From then on the request may be billed."""
        self.sent = False
        """True if the request reached the provider although no answer came, so that it may be billed."""
        self.tries = 1
        """Number of requests sent for this call."""

    @property
    def may_be_retried(self) -> bool:
        """Tell whether the same request may be sent again, because the fault is temporary and no part of the answer had
        arrived.
        """
        return self.retryable and not self.started


class LLMRateLimited(LLMError):
    """Raised when the provider asks for fewer requests."""

    retryable = True
    outcome = "rate_limited"


class LLMUnavailable(LLMError):
    """Raised when the provider can not be reached, or has a fault of its own."""

    retryable = True
    outcome = "unavailable"


class LLMCircuitOpen(LLMUnavailable):
    """Raised when the model failed several times in a row, and later test calls (probes) failed too."""

    retryable = False
    outcome = "circuit_open"


class LLMTimedOut(LLMError, DeadlineError):
    """Raised when a request misses one of its deadlines; ``deadline`` names the deadline."""

    outcome = "timed_out"

    def __init__(self, message: str, *, deadline: Deadline, hint: str = "", partial: str = "") -> None:
        super().__init__(message, hint=hint, partial=partial)
        self.deadline: Deadline = deadline

    @property
    def may_be_retried(self) -> bool:
        """Tell whether nothing arrived over the connection; False if the time for the whole answer is used up."""
        return self.deadline != "total_s" and not self.started


class LLMInterrupted(LLMError):
    """Raised when the answer broke off in the middle."""

    outcome = "interrupted"


class LLMRefused(LLMError, CredentialError):
    """Raised when the key is missing, wrong, or has no permission for the request."""

    outcome = "refused"
    lasting = True


class LLMQuotaExceeded(LLMError, CredentialError):
    """Raised when the account has no credit left, or its own spending limit is reached."""

    outcome = "quota_exceeded"
    lasting = True


class LLMBadRequest(LLMError):
    """Raised when the provider refuses this request, and would refuse it again."""

    outcome = "bad_request"


class LLMUnknownModel(LLMBadRequest):
    """Raised when the endpoint does not serve this model."""

    outcome = "unknown_model"
    lasting = True


class LLMUnsupportedParameter(LLMBadRequest):
    """Raised when the endpoint does not accept one of the request's settings; ``parameter`` names the setting."""

    outcome = "unsupported_parameter"

    def __init__(self, message: str, *, parameter: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(message, hint=hint, status=status)
        self.parameter = parameter


class LLMContextTooLong(LLMBadRequest):
    """Raised when the prompt and the answer do not fit the model's context."""

    outcome = "context_too_long"


class LLMContentFiltered(LLMError):
    """Raised when the provider withheld the answer."""

    outcome = "content_filtered"


class LLMEmpty(LLMError):
    """Raised for an answer without text, or for bytes that are not an answer."""

    outcome = "empty"
    exhausted = False
    """True if reasoning used up all tokens that the answer may have, so that only a higher limit helps."""
