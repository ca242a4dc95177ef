"""What requests may hold and answers hold, as pydantic models. The models that check requests are those that the OpenAPI document shows."""

from .base import Body, Query, parse_body, parse_query

__all__ = ["Body", "Query", "parse_body", "parse_query"]
