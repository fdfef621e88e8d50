"""What holds for every test: how long an example takes is never judged."""

from hypothesis import settings

settings.register_profile("headwater", settings(), deadline=None)
settings.load_profile("headwater")
