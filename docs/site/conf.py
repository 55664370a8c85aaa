"""Sphinx's configuration of the site. scripts/docs gives the folders and the version by the environment."""
import os
import re

project = "Evener"
version = release = os.environ["EVENER_VERSION"]
extensions = ["breathe", "myst_parser"]
exclude_patterns = ["bindings", "examples"]

# Links to headings, as the pages have them for readers of the repository.
myst_heading_anchors = 4
myst_enable_extensions = []

breathe_projects = {"c": os.environ["EVENER_XML_C"], "cpp": os.environ["EVENER_XML_CPP"]}
breathe_default_project = "c"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
# Comments may be long: a line of a parameter each.
maximum_signature_line_length = 100
cpp_maximum_signature_line_length = c_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"Evener {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
# A summary is fetched from the page that was found, which a browser does not allow to pages that it opens as files.
html_show_search_summary = False
html_theme_options = {"navigation_with_keys": False, "top_of_page_buttons": []}
html_last_updated_fmt = None
pygments_style, pygments_dark_style = "friendly", "monokai"


def setup(app):
    # Enums of the C API have no names; doxygen numbers them.
    def name_enums(app, page, template, context, doctree):
        for part in ("toc", "body"):
            if part in context:
                context[part] = re.sub(r"@\d+(?=</)", "constants", context[part])
    app.connect("html-page-context", name_enums, priority=900)
