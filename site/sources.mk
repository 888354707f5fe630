EXTRA_DIST += site/make site/style.css site/index.html site/photographs.html site/masks.html site/memory.html site/questions.html

# The site, in html/: manual, tutorials, and pictures that the program draws.
html-local: amptrain man/amptrain.ini.5 man/amptrain-model.5
	$(AM_V_GEN)sh $(srcdir)/site/make $(srcdir) . html
clean-local:
	rm -rf html
.PHONY: html-local
