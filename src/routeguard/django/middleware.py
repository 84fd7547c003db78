"""`request.routeguard`: the admission of a request, for views that would rather not import anything."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

from routeguard.admitted import admission

GetResponse = Callable[[HttpRequest], "HttpResponse | Awaitable[HttpResponse]"]


class AdmissionMiddleware:
    """Sets `request.routeguard`: an `Admission`, or None where the request is not guarded.

    It guards nothing; that is `RouteGuard` in `asgi.py`. Django reads the whole body before any middleware runs.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            # Django then awaits what `__call__` returns, and puts no thread in between.
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> "HttpResponse | Awaitable[HttpResponse]":
        request.routeguard = admission(request)  # pyright: ignore[reportAttributeAccessIssue]  # a new one
        return self._get_response(request)
