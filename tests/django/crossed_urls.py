"""Routes for pages of other origins."""

from django.http import HttpRequest, HttpResponse
from django.urls import path


async def chat(request: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse("hello")


urlpatterns = [path("chat/<str:name>", chat)]
