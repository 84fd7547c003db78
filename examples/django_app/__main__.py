"""`python -m examples.django_app`: the demo on http://127.0.0.1:8000/ (`PORT` chooses another)."""

from examples.django_app.demo import create_app
from examples.serving import run


def main() -> None:
    """Serve the demo until it is interrupted."""
    run(create_app)


if __name__ == "__main__":
    main()
