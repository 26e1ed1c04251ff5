"""One tree of errors. Each knows what a client is told: HTTP status, OpenAI ``code`` and ``type``, and when to retry.

Expected results of decisions are values (``model.Refused``); these are for what goes wrong at the edge.
"""

from __future__ import annotations

from typing import ClassVar, Final


class ConcurError(Exception):
    """Anything that concur-proxy reports by itself, with a message that names the place and the remedy."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, retry_after_s: float | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.param = param


class ConfigError(ConcurError):
    """A setting that cannot be used; the message has the key's path, the value and what is allowed."""

    code = "config_error"


class RequestError(ConcurError):
    """The client sent something that cannot be served."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class BodyTooLargeError(RequestError):
    status = 413
    code = "body_too_large"


class HeadersTooLargeError(RequestError):
    status = 431
    code = "headers_too_large"


class TargetTooLongError(RequestError):
    status = 414
    code = "target_too_long"


class RequestTimeoutError(RequestError):
    """The client began a request and did not go on with it."""

    status = 408
    code = "request_timeout"


class UnknownPathError(RequestError):
    status = 404
    code = "unknown_path"


class MethodNotAllowedError(RequestError):
    status = 405
    code = "method_not_allowed"


class ModelNotFoundError(RequestError):
    status = 404
    code = "model_not_found"


class InvalidSettingError(RequestError):
    """A change at run time that cannot be made; the message is like that of a ``ConfigError``."""

    code = "invalid_setting"


class SessionNotFoundError(RequestError):
    status = 404
    code = "session_not_found"


class BackendNotFoundError(RequestError):
    status = 404
    code = "backend_not_found"


class NotAuthenticatedError(RequestError):
    """A request without a key that is taken here; which key was wrong, and how, is nobody's business."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"

    def __init__(self) -> None:
        super().__init__(
            "This needs an API key that is known here and has not expired (Authorization: Bearer KEY, or x-api-key)."
        )


CHALLENGE: Final = (b"www-authenticate", b'Bearer realm="concur-proxy"')
"""The header that goes with it."""


class ModelForbiddenError(RequestError):
    """The caller is known, and this model is not among those that it may use."""

    status = 403
    code = "model_not_allowed"
    type = "permission_error"


class ResponseNotFoundError(RequestError):
    """A stored response that is not there, or is somebody else's."""

    status = 404
    code = "response_not_found"


class TooManyListenersError(RequestError):
    """As many as may listen to the live state do."""

    status = 429
    code = "too_many_listeners"
    type = "rate_limit_error"


class NotAuthorizedError(RequestError):
    status = 401
    code = "invalid_admin_token"
    type = "authentication_error"


class ForbiddenError(RequestError):
    status = 403
    code = "forbidden"
    type = "permission_error"


class UnsupportedError(RequestError):
    status = 501
    code = "not_supported"


class BatchOffError(RequestError):
    """The Batch API is not configured."""

    status = 404
    code = "batch_off"


class FileNotStoredError(RequestError):
    """No file of this name belongs to the caller's API key."""

    status = 404
    code = "file_not_found"


class BatchNotFoundError(RequestError):
    """No batch of this name belongs to the caller's API key."""

    status = 404
    code = "batch_not_found"


class StoreUnavailableError(ConcurError):
    """Batches and their files cannot be read or written now."""

    status = 503
    code = "store_unavailable"


class TurnRefusedError(ConcurError):
    """The gate does not let the turn in now."""

    status = 503
    code = "queue_timeout"
    type = "overloaded_error"


class QueueTimeoutError(TurnRefusedError):
    pass


class QueueFullError(TurnRefusedError):
    status = 429
    code = "queue_full"
    type = "rate_limit_error"


class TooManySessionsError(QueueFullError):
    code = "too_many_sessions"


class TooManyHeldError(QueueFullError):
    code = "too_many_held"


class TurnRateError(QueueFullError):
    code = "turn_rate_limit"


class TokenRateError(QueueFullError):
    code = "token_rate_limit"


class BatchPausedError(TurnRefusedError):
    code = "batch_paused"


class NoBackendError(TurnRefusedError):
    code = "no_backend"


class ShuttingDownError(TurnRefusedError):
    code = "shutting_down"


class CutOffError(TurnRefusedError):
    code = "replica_cut_off"


class BackendError(ConcurError):
    """The engine failed in the middle of a turn."""

    status = 502
    code = "backend_error"


class BackendLostError(BackendError):
    """The engine died in the middle of an answer."""

    code = "backend_lost"


class BackendTimeoutError(BackendError):
    status = 504
    code = "backend_timeout"
