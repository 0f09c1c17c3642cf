"""The report: one offline page of pictures, made from a sweep, a journal or a recommendation."""
