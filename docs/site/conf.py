"""Sphinx's configuration of the site. scripts/docs gives the folders and the version by the environment."""
import os

import docutils.nodes

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

# The functions and types of a page of the reference stand in its own table of contents, at the right. In that of the whole site, which
# Sphinx makes anew for each page, they would take most of its time; and fields, constants and enums without names are too many for either.
own_contents = {}


def is_object(item):
    return any(reference["anchorname"].startswith(("#c.", "#_CPP")) for reference in item.children[0].findall(docutils.nodes.reference))


def shorten(contents, deepest):
    """Takes objects that lie deeper in others than `deepest` out of a table of contents."""
    for item in list(contents.findall(docutils.nodes.list_item)):
        around, above = item.parent, 0
        while around is not None and around is not contents:
            above += isinstance(around, docutils.nodes.list_item) and is_object(around)
            around = around.parent
        if is_object(item) and (above >= deepest or "@" in item.astext().split("\n")[0]):
            item.parent.remove(item)
    for list_node in list(contents.findall(docutils.nodes.bullet_list)):
        if not list_node.children and list_node.parent is not None:
            list_node.parent.remove(list_node)


def setup(app):
    def shorten_contents(app, env):
        for page in env.tocs:
            if page.startswith("reference/"):
                own_contents[page] = env.tocs[page].deepcopy()
                shorten(own_contents[page], 1)
                for reference in own_contents[page].findall(docutils.nodes.reference):
                    reference["refuri"] = reference["anchorname"] or "#"
                shorten(env.tocs[page], 0)

    def give_contents(app, page, template, context, doctree):
        if page in own_contents:
            context["toc"] = app.builder.render_partial(own_contents[page])["fragment"]

    app.connect("env-updated", shorten_contents)
    app.connect("html-page-context", give_contents, priority=100)  # before the theme's, which asks whether there are contents
