"""Routes: the guarded chat, the same unguarded but observed, and what only the demo needs."""

from django.urls import path

from examples.django_app import page, views

urlpatterns = [
    path("api/chat", views.chat),
    path("observed/chat", views.chat),
    path("demo/config.json", page.config),
    path("demo/attack/<str:name>", page.attack),
    path("", page.static, {"name": "index.html"}),
    path("<str:name>", page.static),
]
