"""Django settings of the lamp shop. Everything about the guard is in `ROUTEGUARD`; the environment wins over it."""

import secrets

SYSTEM_PROMPT = (
    "You are the assistant of Wick & Filament, a small lamp shop. Answer in two or three short, friendly sentences. "
    "The shop sells three lamps: Dawn, a bedside lamp, 59 dollars; Harbour, a brass desk lamp, 89 dollars; "
    "Mill, a pendant for over the table, 129 dollars. Delivery is free and takes three days."
)

ROUTEGUARD = {
    "PATHS": ["/api/chat"],
    # Pretend prices, USD per million tokens: a hundred times those of a small model, so that the meter moves.
    "PRICE_IN": 20,
    "PRICE_OUT": 200,
    # The guard reserves for this many, and the view tells the provider the same number.
    "MAX_OUTPUT_TOKENS": 200,
    "MAX_BODY": "16kB",
    "MAX_INPUT_CHARS": 4000,
    "SYSTEM_PROMPT": SYSTEM_PROMPT,
    "BUDGET": "1/day",
    "CLIENT_BUDGET": "75%",  # one visitor of a demo on loopback is everybody
}

INSTALLED_APPS = ["routeguard.django"]  # `manage.py check` knows the guard
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",  # this is what compares the host with ALLOWED_HOSTS
    "routeguard.django.AdmissionMiddleware",  # views find `request.routeguard`
]
ASGI_APPLICATION = "examples.django_app.asgi.application"
ROOT_URLCONF = "examples.django_app.urls"

# The page hands out the admin token. No other site may have it by pointing its own name at this address.
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
SECRET_KEY = secrets.token_urlsafe()  # nothing is signed that has to outlive the process
USE_TZ = True
